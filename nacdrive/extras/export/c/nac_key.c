/* The Neuronal Attention Circuit that reads each frame once: D_HEAD channels of HEADS heads, INTER and COMMAND neurons,
   three motor neurons a head. */
enum { WIDTH = HEADS * D_HEAD };

$choose
/* One head's attention over the remembered frames at the time t, D_HEAD numbers into y. */
static void attend(const policy_state *state, const float *query, float t, int head, float *y)
{
    int chosen[POLICY_WINDOW] = {0};
    int n = choose(state, query, head, chosen);
    float logit[POLICY_WINDOW] = {0}, kept[POLICY_WINDOW] = {0};
    for (int i = 0; i < n; i++) {
        int slot = chosen[i];
        const float *key = state->key[slot] + head * D_HEAD, *gate = state->gates[slot];
        float phi = gate[head], omega = gate[HEADS + head], rho = gate[2 * HEADS + head];
        float lag = (t - state->t[slot]) / TIME_SCALE, content = 0.0f;
        lag = lag > 0.0f ? lag : 0.0f;
        for (int d = 0; d < D_HEAD; d++) content += query[d] * key[d];
        logit[i] = content + gamma_of[head] * (settle(omega * phi, omega, lag) - omega * lag);
        kept[i] = expf(-rho * lag);
    }
    merge(state, chosen, n, logit, kept, head, y);
}

/* Remember the frame with FEATURES numbers x, taken at t, and attend: WIDTH numbers into y. */
static int sequence(policy_state *state, const float *x, float t, float *y)
{
    float z[FEATURES + 2 * FREQUENCIES], inter[INTER], command[COMMAND], query[WIDTH], heads[WIDTH];
    float mean = 0.0f, variance = 0.0f;
    for (int i = 0; i < FEATURES; i++) mean += x[i] / FEATURES;
    for (int i = 0; i < FEATURES; i++) variance += (x[i] - mean) * (x[i] - mean) / FEATURES;
    for (int i = 0; i < FEATURES; i++) z[i] = (x[i] - mean) / sqrtf(variance + NORM_EPS) * norm_weight[i] + norm_bias[i];
#if FREQUENCIES
    for (int i = 0; i < FREQUENCIES; i++) {
        double phase = (double)t / TIME_SCALE * frequencies[i];
        z[FEATURES + i] = (float)sin(phase), z[FEATURES + FREQUENCIES + i] = (float)cos(phase);
    }
#endif
    int slot = state->next;
    float *gate = state->gates[slot];
    linear(z, FEATURES + 2 * FREQUENCIES, &query_weight[0][0], query_bias, WIDTH, query);
    linear(z, FEATURES + 2 * FREQUENCIES, &key_weight[0][0], key_bias, WIDTH, state->key[slot]);
    linear(z, FEATURES, &value_weight[0][0], value_bias, WIDTH, state->value[slot]);
    linear(z, FEATURES, &inter_weight[0][0], inter_bias, INTER, inter);
    for (int i = 0; i < INTER; i++) inter[i] = tanh_of(inter[i]);
    linear(inter, INTER, &command_weight[0][0], command_bias, COMMAND, command);
    for (int i = 0; i < COMMAND; i++) command[i] = tanh_of(command[i]);
    linear(command, COMMAND, &motor_weight[0][0], motor_bias, 3 * HEADS, gate);
    for (int i = 0; i < HEADS; i++) gate[i] = tanh_of(gate[i]);
    for (int i = HEADS; i < 3 * HEADS; i++) gate[i] = log1pf(expf(-fabsf(gate[i]))) + (gate[i] > 0.0f ? gate[i] : 0.0f);
    state->t[slot] = t;
    state->next = (slot + 1) % POLICY_WINDOW;
    if (state->count < POLICY_WINDOW) state->count++;
    for (int h = 0; h < HEADS; h++) attend(state, query + h * D_HEAD, t, h, heads + h * D_HEAD);
    linear(heads, WIDTH, &out_weight[0][0], out_bias, D_MODEL, y);
    return POLICY_OK;
}
