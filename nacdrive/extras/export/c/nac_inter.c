    float s[4][COMMAND];
    for (int p = 0; p < 4; p++) {
        for (int i = 0; i < INTER; i++) z[p][i] = CIRCUIT(z[p][i]);
    }
    for (int b = 0; b < COMMAND / BLOCK; b++) {
        float sum0[BLOCK], sum1[BLOCK], sum2[BLOCK], sum3[BLOCK];
        const float(*w)[BLOCK] = inter_weight[head][b];
        for (int o = 0; o < BLOCK; o++) sum0[o] = sum1[o] = sum2[o] = sum3[o] = inter_bias[head][b * BLOCK + o];
        for (int i = 0; i < INTER; i++) {
            float z0 = z[0][i], z1 = z[1][i], z2 = z[2][i], z3 = z[3][i];
            for (int o = 0; o < BLOCK; o++) {
                sum0[o] += z0 * w[i][o];
                sum1[o] += z1 * w[i][o];
                sum2[o] += z2 * w[i][o];
                sum3[o] += z3 * w[i][o];
            }
        }
        memcpy(s[0] + b * BLOCK, sum0, sizeof sum0);
        memcpy(s[1] + b * BLOCK, sum1, sizeof sum1);
        memcpy(s[2] + b * BLOCK, sum2, sizeof sum2);
        memcpy(s[3] + b * BLOCK, sum3, sizeof sum3);
    }
