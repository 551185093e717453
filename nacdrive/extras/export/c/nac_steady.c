/* Logit of a pair: the limit of da/dt = phi - omega a. */
static inline float settle(float phi, float omega, float t)
{
    (void)t;
    return phi / omega;
}
