/* Bytes of a frame to -1 .. 1. */
static void preprocess(const uint8_t *restrict frame, float *restrict x, float *restrict unused)
{
    (void)unused;
    for (int i = 0; i < ROWS * COLUMNS * 3; i++) x[i] = (float)frame[i] * (2.0f / 255.0f) - 1.0f;
}
