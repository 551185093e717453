/* Logit of a pair: da/dt = phi - omega a, solved from 0 to t. */
static inline float settle(float phi, float omega, float t)
{
    float x = omega * t;
    return x > 0.0f ? phi * t * (-expm1f(-x) / x) : phi * t;
}
