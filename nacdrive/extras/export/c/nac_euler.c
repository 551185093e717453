/* Logit of a pair: da/dt = phi - omega a in $steps steps, none longer than 1 / omega. */
static inline float settle(float phi, float omega, float t)
{
    float h = $h;
    h = h < 1.0f / omega ? h : 1.0f / omega;
    float kept = 1.0f - h * omega, total = 1.0f;
    for (int i = 1; i < $steps; i++) total = 1.0f + kept * total;
    (void)t;
    return h * phi * total;
}
