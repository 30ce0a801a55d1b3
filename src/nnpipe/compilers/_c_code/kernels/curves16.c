/* Logistic function and tanh of 16-bit numbers in fixed point, as gemmlowp has them. */
static int32_t nn_clamp16(int32_t x) { return x < -32768 ? -32768 : x > 32767 ? 32767 : x; }

static int32_t nn_product16(int32_t a, int32_t b) {
    int32_t product = a * b;
    return nn_clamp16((product + (product >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15));
}

/* e to the power of x <= 0, which has some bits before the point: a polynomial between -1/4 and 0, times powers. */
static int32_t nn_exp16(int32_t x, int32_t bits) {
    static const int16_t powers[7] = {25520, 19875, 12055, 4435, 600, 11, 0}; /* of -1/4, -1/2, -1, ... */
    int32_t quarter = 1 << (13 - bits), rest = (x & (quarter - 1)) - quarter, y, square, sum, found;
    if (x == 0) return 32767;
    if (bits > 5 && x < -(1 << (20 - bits))) return 0;
    y = rest * (1 << bits) + (1 << 12);
    square = nn_product16(y, y);
    sum = nn_rounded_shift(nn_product16(square, square), 2) + nn_product16(square, y);
    sum = y + nn_rounded_shift(nn_product16(sum, 10923) + square, 1);
    found = nn_clamp16(28918 + nn_product16(28918, sum));
    for (int32_t n = 0; n < bits + 2 && n < 7; n++)
        if ((rest - x) & (quarter << n)) found = nn_product16(found, powers[n]);
    return found;
}

/* Two divided by one plus x, for x from 0 to 1; the result has two bits before the point. */
static int32_t nn_twice_inverse16(int32_t x) {
    int32_t half = (x + 32768) / 2, found = 23130 + nn_product16(half, -15420);
    for (int32_t n = 0; n < 3; n++) found += nn_clamp16(nn_product16(found, 8192 - nn_product16(half, found)) * 4);
    return found;
}

static int32_t nn_logistic16(int32_t x) {
    int32_t found;
    if (x == 0) return 16384;
    found = nn_clamp16(nn_twice_inverse16(nn_exp16(x < 0 ? x : -x, 3)) * 2);
    return x < 0 ? 32767 - found : found;
}

static int32_t nn_tanh16(int32_t x, int32_t bits) {
    int32_t found;
    if (x == 0) return 0;
    found = nn_clamp16((nn_twice_inverse16(nn_exp16(x < 0 ? x : -x, bits + 1)) - 8192) * 4);
    return x < 0 ? -found : found;
}
