/* Which remembered frames a head is paired with; the newest are first where there is nothing to choose. */
static int choose(const policy_state *state, const float *query, int head, int chosen[POLICY_WINDOW])
{
    int n = 0;
    for (int i = 0; i < state->count; i++) chosen[n++] = (state->next - 1 - i + POLICY_WINDOW) % POLICY_WINDOW;
#if TOPK < POLICY_WINDOW
    /* The best TOPK by dot product of query and key come to the front. */
    float score[POLICY_WINDOW];
    for (int i = 0; i < n; i++) {
        score[i] = 0.0f;
        for (int d = 0; d < D_HEAD; d++) score[i] += query[d] * state->key[chosen[i]][head * D_HEAD + d];
    }
    for (int i = 0; i < n && i < TOPK; i++) {
        int best = i;
        for (int j = i + 1; j < n; j++) {
            if (score[j] > score[best]) best = j;
        }
        int slot = chosen[i];
        float other = score[i];
        chosen[i] = chosen[best], score[i] = score[best];
        chosen[best] = slot, score[best] = other;
    }
    n = n < TOPK ? n : TOPK;
#else
    (void)query;
    (void)head;
#endif
    return n;
}

/* A head's attention to n chosen frames, D_HEAD numbers into y: their values by the softmax of logit and by factor. */
static void merge(const policy_state *state, const int *chosen, int n, float *logit, const float *factor, int head,
                  float *y)
{
    float highest = logit[0], sum = 0.0f;
    for (int i = 1; i < n; i++) highest = logit[i] > highest ? logit[i] : highest;
    for (int i = 0; i < n; i++) sum += logit[i] = expf(logit[i] - highest);
    for (int d = 0; d < D_HEAD; d++) y[d] = 0.0f;
    for (int i = 0; i < n; i++) {
        float share = logit[i] / sum * factor[i];
        const float *value = state->value[chosen[i]] + head * D_HEAD;
        for (int d = 0; d < D_HEAD; d++) y[d] += share * value[d];
    }
}
