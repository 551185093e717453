/* A dense layer on the present frame alone; D_MODEL numbers into y. */
static int sequence(policy_state *state, const float *x, float t, float *y)
{
    (void)state;
    (void)t;
    linear(x, FEATURES, &dense_weight[0][0], dense_bias, D_MODEL, y);
    for (int i = 0; i < D_MODEL; i++) y[i] = elu_of(y[i]);
    return POLICY_OK;
}
