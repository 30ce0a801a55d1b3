/* The natural logarithm, right to 1e-7 of its value: the exponent, and a polynomial of the rest (Cephes). */
static float nn_log(float x) {
    union { float real; uint32_t bits; } part;
    float power = 0, rest, square, value;
    if (!(x > 0) || x > 3.40282347e38f) return x < 0 ? (x - x) / (x - x) : x == 0 ? -1 / x : x;
    if (x < 1.17549435e-38f) { x *= 8388608.0f; power = -23; }
    part.real = x;
    power += (float)((int32_t)(part.bits >> 23) - 126);
    part.bits = (part.bits & 0x7FFFFFu) | 0x3F000000u;
    rest = part.real;
    if (rest < 0.707106781f) { power -= 1; rest += rest; }
    rest -= 1;
    square = rest * rest;
    value = 7.0376836292e-2f;
    value = value * rest - 1.1514610310e-1f;
    value = value * rest + 1.1676998740e-1f;
    value = value * rest - 1.2420140846e-1f;
    value = value * rest + 1.4249322787e-1f;
    value = value * rest - 1.6668057665e-1f;
    value = value * rest + 2.0000714765e-1f;
    value = value * rest - 2.4999993993e-1f;
    value = value * rest + 3.3333331174e-1f;
    value = value * rest * square - 2.12194440e-4f * power - 0.5f * square;
    return rest + value + 0.693359375f * power;
}
