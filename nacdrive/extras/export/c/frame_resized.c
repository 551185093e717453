/* w * value + sum, rounded once, as torch resizes: a pixel that is rounded the other way would be another level of
   grey. For the same reason compile with -std=c99, under which the products of colours are not joined so. */
static inline float added(float sum, float w, float value) { return (float)((double)sum + (double)w * (double)value); }

/* Crop, resize by area$and_yuv, round to bytes, and turn them into -1 .. 1. */
static void preprocess(const uint8_t *restrict frame, float *restrict x, float *restrict narrow)
{
    for (int row = 0; row < KEPT_ROWS; row++) {
        $row
        for (int column = 0; column < COLUMNS; column++) {
            for (int c = 0; c < 3; c++) {
                float sum = 0.0f;
                for (int k = 0; k < ACROSS_TAPS; k++) {
                    sum = added(sum, across_weight[column][k], (float)in[(across_first[column] + k) * 3 + c]);
                }
                narrow[(row * COLUMNS + column) * 3 + c] = sum;
            }
        }
    }
    for (int row = 0; row < ROWS; row++) {
        const float *in = narrow + down_first[row] * COLUMNS * 3;
        float *out = x + row * COLUMNS * 3;
        for (int i = 0; i < COLUMNS * 3; i++) out[i] = 0.0f;
        for (int k = 0; k < DOWN_TAPS; k++) {
            float w = down_weight[row][k];
            for (int i = 0; i < COLUMNS * 3; i++) out[i] = added(out[i], w, in[k * COLUMNS * 3 + i]);
        }
    }
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const float rgb[3] = {x[3 * i], x[3 * i + 1], x[3 * i + 2]};
        for (int c = 0; c < 3; c++) {
            float value = $colour;
            /* To the nearest whole number, halves to the even one. */
            value = (float)(value + 12582912.0f) - 12582912.0f;
            value = value < 0.0f ? 0.0f : value > 255.0f ? 255.0f : value;
            x[3 * i + c] = value * (2.0f / 255.0f) - 1.0f;
        }
    }
}
