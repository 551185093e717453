void policy_reset(policy_state *state)
{
    memset(state, 0, sizeof *state);
}

int policy_step(policy_state *state, const uint8_t *frame, double t_s, float speed_mps, policy_action *action)
{
    (void)speed_mps;
    if (!(fabs(t_s) < 262144.0)) return POLICY_BAD_TIME; /* NaN, too; float tells no moments apart out there */
    float *a = state->scratch[0], *b = state->scratch[1];
    preprocess(frame, a, b);
$masked$convolutions
    float y[D_MODEL], hidden[HIDDEN];
    int problem = sequence(state, $features, (float)t_s, y);
    if (problem) return problem;
    linear(y, D_MODEL, &hidden_weight[0][0], hidden_bias, HIDDEN, hidden);
    for (int i = 0; i < HIDDEN; i++) hidden[i] = ACTIVATION(hidden[i]);
    linear(hidden, HIDDEN, &output_weight[0][0], output_bias, POLICY_OUTPUTS, action->outputs);
$decide
    return POLICY_OK;
}
