/* The same for 64-bit sums of 16-bit activations, with a multiplier of 16 bits. */
static int32_t nn_rescale64(int64_t x, int32_t multiplier, int32_t shift) {
    int64_t reduced = multiplier < 0x7FFF0000 ? (multiplier + (1 << 15)) >> 16 : 0x7FFF;
    int32_t by = 15 - shift;
    return (int32_t)((x * reduced + ((int64_t)1 << (by - 1))) >> by);
}
