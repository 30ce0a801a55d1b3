static void nn_squared_difference_s8(const int8_t *first, const int8_t *second, int8_t *out, const nn_pairs *p,
                                     const nn_scales *s, int32_t multiplier, int32_t shift, int32_t out_zero) {
    NN_EACH_PLACE(p->length, i, j, k, l) {
        int32_t a = first[NN_AT(p->first, i, j, k, l)] - s->zero;
        int32_t b = second[NN_AT(p->second, i, j, k, l)] - s->second_zero;
        a = nn_rescale(a * 128, s->multiplier, s->shift) - nn_rescale(b * 128, s->second_multiplier, s->second_shift);
        *out++ = (int8_t)nn_clamp(nn_rescale(a * a, multiplier, shift) + out_zero, -128, 127);
    }
}
