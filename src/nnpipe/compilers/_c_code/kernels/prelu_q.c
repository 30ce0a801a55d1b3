typedef struct { int32_t zero, slope_zero, out_zero, multiplier, shift, slope_multiplier, slope_shift; } nn_slope_@;

static void nn_prelu_@(const OUT *first, const OUT *second, OUT *out, const nn_pairs *p, const nn_slope_@ *s) {
    for (int32_t i = 0; i < p->length[0]; i++)
        for (int32_t j = 0; j < p->length[1]; j++)
            for (int32_t k = 0; k < p->length[2]; k++)
                for (int32_t l = 0; l < p->length[3]; l++) {
                    int32_t a = first[i * p->first[0] + j * p->first[1] + k * p->first[2] + l * p->first[3]] - s->zero;
                    int32_t b = second[i * p->second[0] + j * p->second[1] + k * p->second[2] + l * p->second[3]] - s->slope_zero;
                    int32_t found = a >= 0 ? nn_rescale(a, s->multiplier, s->shift)
                                           : nn_rescale(a * b, s->slope_multiplier, s->slope_shift);
                    *out++ = (OUT)nn_clamp(found + s->out_zero, LEAST, MOST);
                }
}
