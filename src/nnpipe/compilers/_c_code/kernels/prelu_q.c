typedef struct { int32_t zero, slope_zero, out_zero, multiplier, shift, slope_multiplier, slope_shift; } nn_slope_@;

static void nn_prelu_@(const OUT *first, const OUT *second, OUT *out, const nn_pairs *p, const nn_slope_@ *s) {
    NN_EACH_PLACE(p->length, i, j, k, l) {
        int32_t a = first[NN_AT(p->first, i, j, k, l)] - s->zero;
        int32_t b = second[NN_AT(p->second, i, j, k, l)] - s->slope_zero;
        int32_t found = a >= 0 ? nn_rescale(a, s->multiplier, s->shift)
                               : nn_rescale(a * b, s->slope_multiplier, s->slope_shift);
        *out++ = (OUT)nn_clamp(found + s->out_zero, LEAST, MOST);
    }
}
