/* The same for any sum and shift. */
NN_INLINE int32_t nn_rounding_any(int32_t zero, int32_t shift) {
    (void)shift;
    return zero;
}
NN_INLINE int32_t nn_requantise_any(int32_t sum, int32_t multiplier, int32_t shift, int32_t zero) {
    return nn_rescale(sum, multiplier, shift) + zero;
}
