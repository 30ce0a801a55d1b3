static void nn_@(const IN *first, const IN *second, uint8_t *out, const nn_pairs *p, const nn_scales *s) {
    NN_EACH_PLACE(p->length, i, j, k, l) {
        int32_t a = first[NN_AT(p->first, i, j, k, l)] - s->zero;
        int32_t b = second[NN_AT(p->second, i, j, k, l)] - s->second_zero;
        a = nn_rescale(a * 256, s->multiplier, s->shift);
        b = nn_rescale(b * 256, s->second_multiplier, s->second_shift);
        *out++ = a COMPARE b;
    }
}
