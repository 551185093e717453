    for (int unfold = 1; unfold < UNFOLDS; unfold++) {
        float sum[4][COMMAND];
        for (int p = 0; p < 4; p++) {
            memcpy(sum[p], s[p], sizeof sum[p]);
            for (int e = 0; e < EDGES; e++) sum[p][command_to[e]] += command[p][command_from[e]] * command_weight[head][e];
        }
        for (int p = 0; p < 4; p++) {
            for (int c = 0; c < COMMAND; c++) command[p][c] = CIRCUIT(sum[p][c]);
        }
    }
