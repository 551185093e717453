/* An LSTM over the remembered frames, begun anew at each; D_MODEL numbers into y. */
static int sequence(policy_state *state, const float *x, float t, float *y)
{
    (void)t;
    linear(x, FEATURES, &input_weight[0][0], input_bias, 4 * D_MODEL, state->input[state->next]);
    state->next = (state->next + 1) % POLICY_WINDOW;
    if (state->count < POLICY_WINDOW) state->count++;
    float cell[D_MODEL];
    for (int i = 0; i < D_MODEL; i++) y[i] = cell[i] = 0.0f;
    for (int step = 0; step < state->count; step++) {
        const float *u = state->input[(state->next - state->count + step + POLICY_WINDOW) % POLICY_WINDOW];
        float v[4 * D_MODEL];
        linear(y, D_MODEL, &recurrent_weight[0][0], u, 4 * D_MODEL, v);
        for (int i = 0; i < D_MODEL; i++) {
            float in = sigmoid_of(v[i]), kept = sigmoid_of(v[D_MODEL + i]);
            float fresh = tanh_of(v[2 * D_MODEL + i]), out = sigmoid_of(v[3 * D_MODEL + i]);
            cell[i] = kept * cell[i] + in * fresh;
            y[i] = out * tanh_of(cell[i]);
        }
    }
    return POLICY_OK;
}
