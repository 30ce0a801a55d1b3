/* e to the power of x, right to 1e-7 of its value: 2^n times a polynomial of the rest. */
static float nn_exp(float x) {
    union { float real; uint32_t bits; } power;
    float count, rest, value;
    int32_t n;
    if (x > 88.72f) x = 88.72f;
    if (x < -87.33f) return 0;
    count = x * 1.44269504f;
    n = (int32_t)(count + (count < 0 ? -0.5f : 0.5f));
    rest = (x - (float)n * 0.693359375f) + (float)n * 2.12194440e-4f;
    value = 1.9875691500e-4f;
    value = value * rest + 1.3981999507e-3f;
    value = value * rest + 8.3334519073e-3f;
    value = value * rest + 4.1665795894e-2f;
    value = value * rest + 1.6666665459e-1f;
    value = value * rest + 5.0000001201e-1f;
    value = value * rest * rest + rest + 1;
    power.bits = (uint32_t)(n > 127 ? 254 : n + 127) << 23;
    return n > 127 ? value * power.real * 2 : value * power.real;
}
