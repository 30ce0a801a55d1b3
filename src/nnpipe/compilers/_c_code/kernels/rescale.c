/* Fixed-point multiplication as in TensorFlow Lite's reference kernels (double rounding). */
static int32_t nn_high_product(int32_t a, int32_t b) {
    int64_t product = (int64_t)a * b;
    if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
    return (int32_t)((product + (product >= 0 ? (1 << 30) : 1 - (1 << 30))) / ((int64_t)1 << 31));
}

static int32_t nn_rounded_shift(int32_t x, int32_t by) {
    int32_t mask = (int32_t)(((int64_t)1 << by) - 1), rest = x & mask, threshold = (mask >> 1) + (x < 0);
    return (x >> by) + (rest > threshold);
}

static int32_t nn_rescale(int32_t x, int32_t multiplier, int32_t shift) {
    int32_t left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
    return nn_rounded_shift(nn_high_product((int32_t)((uint32_t)x << left), multiplier), right);
}
