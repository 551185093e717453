/* $channels_in x $rows_in x $columns_in -> $channels x $rows x $columns, kernel $kernel, stride $stride. Pixels lie as [row][column][channel],
   weights as [block of channels][kernel row][kernel column and channel][channel of the block]. Three pixels are
   computed at a time: their sums stay in registers while the kernel passes by. */
static void convolution_LAYER(const float *restrict in, float *restrict out)
{
    enum { BLOCK = $block, BLOCKS = $blocks, CHANNELS = $channels, LENGTH = $kernel * $channels_in, NEXT = $stride * $channels_in };
    enum { SECOND = $columns > 1 ? 1 : 0, THIRD = $columns > 2 ? 2 : 0 };
    for (int y = 0; y < $rows; y++) {
        for (int x0 = 0; x0 < $columns; x0 += 3) {
            int x = x0 + THIRD < $columns ? x0 : $columns - 1 - THIRD; /* the last three may be computed twice */
            for (int b = 0; b < BLOCKS; b++) {
                float sum0[BLOCK], sum1[BLOCK], sum2[BLOCK];
                for (int o = 0; o < BLOCK; o++) sum0[o] = sum1[o] = sum2[o] = bias_LAYER[b * BLOCK + o];
                for (int k = 0; k < $kernel; k++) {
                    const float *row = in + ((y * $stride + k) * $columns_in + x * $stride) * $channels_in;
                    const float *w = weight_LAYER + (b * $kernel + k) * LENGTH * BLOCK;
                    for (int j = 0; j < LENGTH; j++, w += BLOCK) {
                        float x0j = row[j], x1j = row[SECOND * NEXT + j], x2j = row[THIRD * NEXT + j];
                        for (int o = 0; o < BLOCK; o++) {
                            sum0[o] += x0j * w[o];
                            sum1[o] += x1j * w[o];
                            sum2[o] += x2j * w[o];
                        }
                    }
                }
                float *pixel = out + (y * $columns + x) * CHANNELS + b * BLOCK;
                for (int o = 0; o < BLOCK && b * BLOCK + o < CHANNELS; o++) {
                    pixel[o] = sum0[o];
                    pixel[SECOND * CHANNELS + o] = sum1[o];
                    pixel[THIRD * CHANNELS + o] = sum2[o];
                }
            }
        }
    }
    for (int i = 0; i < $rows * $columns * CHANNELS; i++) out[i] = ACTIVATION(out[i]);
}
