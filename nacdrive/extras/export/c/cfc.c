/* A closed-form continuous-time network over the remembered frames, begun anew at each; D_MODEL numbers into y. */
static int sequence(policy_state *state, const float *x, float t, float *y)
{
    linear(x, FEATURES, &input_weight[0][0], input_bias, BACKBONE, state->input[state->next]);
    state->t[state->next] = t;
    state->next = (state->next + 1) % POLICY_WINDOW;
    if (state->count < POLICY_WINDOW) state->count++;
    for (int i = 0; i < D_MODEL; i++) y[i] = 0.0f;
    float before = 0.0f;
    for (int step = 0; step < state->count; step++) {
        int slot = (state->next - state->count + step + POLICY_WINDOW) % POLICY_WINDOW;
        float gap = step == 0 ? TIME_SCALE : state->t[slot] - before;
        before = state->t[slot];
        float dt = gap > 0.0f ? gap / TIME_SCALE : 0.0f;
        float backbone[BACKBONE], mixed[4 * D_MODEL];
        linear(y, D_MODEL, &recurrent_weight[0][0], state->input[slot], BACKBONE, backbone);
        for (int i = 0; i < BACKBONE; i++) backbone[i] = tanh_of(backbone[i]);
        linear(backbone, BACKBONE, &heads_weight[0][0], heads_bias, 4 * D_MODEL, mixed);
        for (int i = 0; i < D_MODEL; i++) {
            float first = tanh_of(mixed[i]), second = tanh_of(mixed[D_MODEL + i]);
            float gate = sigmoid_of(mixed[3 * D_MODEL + i] + mixed[2 * D_MODEL + i] * dt);
            y[i] = first + gate * (second - first);
        }
    }
    return POLICY_OK;
}
