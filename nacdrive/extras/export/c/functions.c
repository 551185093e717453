/* exp by a polynomial, relative error below 2e-7, from -87 to 87. Without a branch, a comparison of floats or a call,
   so that the compiler computes several at once. */
static inline float exp_of(float x)
{
    int32_t bits, size, n;
    memcpy(&bits, &x, sizeof bits);
    size = bits & 0x7fffffff;
    size = size < 0x42ae0000 ? size : 0x42ae0000; /* 87 */
    bits = (bits & ~0x7fffffff) | size;
    memcpy(&x, &bits, sizeof x);
    /* Adding 1.5 * 2^23 leaves the nearest whole number in the lowest bits. */
    float shifted = x * 1.44269504f + 12582912.0f;
    memcpy(&n, &shifted, sizeof n);
    float whole = shifted - 12582912.0f;
    float r = x - whole * 0.693145752f - whole * 1.42860677e-6f;
    float p = 1.0f / 720.0f + r * (1.0f / 5040.0f);
    p = 0.00833333333f + r * p;
    p = 0.0416666667f + r * p;
    p = 0.166666667f + r * p;
    p = 0.5f + r * p;
    p = 1.0f + r * p;
    p = 1.0f + r * p;
    bits = (n - 0x4b400000 + 127) * (1 << 23);
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

static inline float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }
static inline float tanh_of(float x) { return 2.0f * sigmoid_of(2.0f * x) - 1.0f; }
static inline float silu_of(float x) { return x * sigmoid_of(x); }
static inline float linear_of(float x) { return x; }
static inline float relu_of(float x) { return x > 0.0f ? x : 0.0f; }
static inline float elu_of(float x) { return x > 0.0f ? x : exp_of(x < 0.0f ? x : 0.0f) - 1.0f; }

/* y = W x + bias, W stored as [inputs][outputs]; four inputs at a time, so that y is read and written less often. */
static void linear(const float *restrict x, int inputs, const float *restrict weight, const float *restrict bias,
                   int outputs, float *restrict y)
{
    for (int o = 0; o < outputs; o++) y[o] = bias[o];
    int i = 0;
    for (; i + 4 <= inputs; i += 4) {
        const float *w0 = weight + (long)i * outputs, *w1 = w0 + outputs, *w2 = w1 + outputs, *w3 = w2 + outputs;
        float x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
        if (x0 == 0.0f && x1 == 0.0f && x2 == 0.0f && x3 == 0.0f) continue; /* much is 0 behind a ReLU */
        for (int o = 0; o < outputs; o++) y[o] += x0 * w0[o] + x1 * w1[o] + x2 * w2[o] + x3 * w3[o];
    }
    for (; i < inputs; i++) {
        for (int o = 0; o < outputs; o++) y[o] += x[i] * weight[(long)i * outputs + o];
    }
}
