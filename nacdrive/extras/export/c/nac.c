/* The Neuronal Attention Circuit: D_HEAD channels of HEADS heads, INTER and COMMAND neurons (both padded with neurons
   that reach nobody). A pair is the present frame with a remembered one; four pairs are computed at a time. */
enum { WIDTH = HEADS * D_HEAD, BLOCK = 24 };

/* Motor neurons of four pairs of one head; z is the first layer's sum. */
static void circuit(int head, float z[4][INTER], float motor[4][2])
{
$inter_part
    float command[4][COMMAND];
    for (int p = 0; p < 4; p++) {
        for (int c = 0; c < COMMAND; c++) command[p][c] = CIRCUIT(s[p][c]);
    }
$command_part
    const float(*w)[2] = motor_weight[head];
    for (int p = 0; p < 4; p++) motor[p][0] = motor_bias[head][0], motor[p][1] = motor_bias[head][1];
    for (int c = 0; c < COMMAND; c++) {
        for (int p = 0; p < 4; p++) {
            motor[p][0] += command[p][c] * w[c][0];
            motor[p][1] += command[p][c] * w[c][1];
        }
    }
}

$choose
/* One head's attention over the remembered frames, D_HEAD numbers into y. */
static void attend(const policy_state *state, const float *query, float t, float gap, int head, float *y)
{
    (void)t;
    (void)gap;
    int chosen[POLICY_WINDOW] = {0};
    int n = choose(state, query, head, chosen);
    float of_query[INTER], time_of_query[2] = {time_bias[head][0], time_bias[head][1]};
    linear(query, D_HEAD, &first_query[head][0][0], first_bias[head], INTER, of_query);
    for (int d = 0; d < D_HEAD; d++) {
        time_of_query[0] += query[d] * time_query[head][d][0];
        time_of_query[1] += query[d] * time_query[head][d][1];
    }
    float logit[POLICY_WINDOW] = {0}, factor[POLICY_WINDOW] = {0};
    for (int first = 0; first < n; first += 4) {
        float z[4][INTER], motor[4][2];
        for (int p = 0; p < 4; p++) {
            /* Fewer than four are left: the last one is computed again. */
            const float *of_key = state->first[chosen[first + p < n ? first + p : n - 1]] + head * INTER;
            for (int i = 0; i < INTER; i++) z[p][i] = of_query[i] + of_key[i];
        }
        circuit(head, z, motor);
        for (int p = 0; p < 4 && first + p < n; p++) {
            int slot = chosen[first + p];
            float phi = PHI(motor[p][0]), rate = motor[p][1];
            float omega = log1pf(expf(-fabsf(rate))) + (rate > 0.0f ? rate : 0.0f) + EPS;
            float slope = time_of_query[0] + state->time[slot][head * 2];
            float offset = time_of_query[1] + state->time[slot][head * 2 + 1];
            float tau = $tau;
            float time = sigmoid_of(tau * slope + offset);
            logit[first + p] = settle(phi, omega, time) * logit_scale[head];
            factor[first + p] = $quadrature;
        }
    }
    merge(state, chosen, n, logit, factor, head, y);
}

/* Remember the frame with FEATURES numbers x, taken at t, and attend: WIDTH numbers into y. */
static int sequence(policy_state *state, const float *x, float t, float *y)
{
    float gap = 1.0f;
    if (state->count > 0) {
        gap = t - state->last_t;
        if (CHECKS_ORDER && gap < 0.0f) return POLICY_BAD_TIME;
        gap /= TIME_SCALE;
    }
    float gates[3 * WIDTH], heads[WIDTH];
    linear(x, FEATURES, &sensory_weight[0][0], sensory_bias, 3 * WIDTH, gates);
    const float *query = gates, *key = gates + WIDTH, *value = gates + 2 * WIDTH;
    int slot = state->next;
    static const float zeros[INTER];
    memcpy(state->key[slot], key, sizeof state->key[slot]);
    memcpy(state->value[slot], value, sizeof state->value[slot]);
    state->t[slot] = state->last_t = t;
    for (int h = 0; h < HEADS; h++) {
        linear(key + h * D_HEAD, D_HEAD, &first_key[h][0][0], zeros, INTER, state->first[slot] + h * INTER);
        linear(key + h * D_HEAD, D_HEAD, &time_key[h][0][0], zeros, 2, state->time[slot] + h * 2);
    }
    state->next = (slot + 1) % POLICY_WINDOW;
    if (state->count < POLICY_WINDOW) state->count++;
    for (int h = 0; h < HEADS; h++) attend(state, query + h * D_HEAD, t, gap, h, heads + h * D_HEAD);
    linear(heads, WIDTH, &out_weight[0][0], out_bias, D_MODEL, y);
    return POLICY_OK;
}
