/* Fixed-point multiplication that rounds once, as in TensorFlow Lite's dense layers of 8-bit numbers. */
static int32_t nn_rescale_once(int32_t x, int32_t multiplier, int32_t shift) {
    int32_t by = 31 - shift;
    return (int32_t)(((int64_t)x * multiplier + ((int64_t)1 << (by - 1))) >> by);
}
