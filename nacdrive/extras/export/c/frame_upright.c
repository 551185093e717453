/* A row of the picture as a straight camera would have seen it: places rounded to 32nds of a pixel, and between pixels
   linear in whole numbers, so that the bytes are those of nacdrive. */
static void upright(const uint8_t *restrict frame, int row, uint8_t *restrict out)
{
    for (int column = 0; column < POLICY_WIDTH; column++) {
        double place[3];
        for (int i = 0; i < 3; i++) place[i] = turn[i][0] * column + turn[i][1] * row + turn[i][2];
        double across = floor(place[0] / place[2] * 32 + 0.5), down = floor(place[1] / place[2] * 32 + 0.5);
        int u = (int)fmin(fmax(across, 0), (POLICY_WIDTH - 1) * 32);
        int v = (int)fmin(fmax(down, 0), (POLICY_HEIGHT - 1) * 32);
        int x = u / 32 < POLICY_WIDTH - 2 ? u / 32 : POLICY_WIDTH - 2;
        int y = v / 32 < POLICY_HEIGHT - 2 ? v / 32 : POLICY_HEIGHT - 2;
        int right = u - 32 * x, below = v - 32 * y;
        const uint8_t *above = frame + (y * POLICY_WIDTH + x) * 3, *under = above + POLICY_WIDTH * 3;
        for (int c = 0; c < 3; c++) {
            int first = (32 - right) * above[c] + right * above[c + 3];
            int second = (32 - right) * under[c] + right * under[c + 3];
            out[column * 3 + c] = (uint8_t)(((32 - below) * first + below * second + 512) >> 10);
        }
    }
}
