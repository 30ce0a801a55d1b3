/* From a sum to the output's scale, for sums below 2^30 and shifts to the right by at least 1: the same as nn_rescale,
 * with the zero point added before the shift. */
NN_INLINE int32_t nn_rounding(int32_t zero, int32_t shift) { return (2 * zero + 1) * (int32_t)(1u << (-shift - 1)); }
NN_INLINE int32_t nn_requantise(int32_t sum, int32_t multiplier, int32_t shift, int32_t rounding) {
#if NN_DSP
    int32_t x = nn_upper(sum * 2, multiplier);
#else
    int32_t x = (int32_t)(((int64_t)sum * multiplier + (1 << 30)) >> 31);
#endif
    return (x + (x >> 31) + rounding) >> -shift;
}
