typedef struct { int32_t first_zero, second_zero, out_zero, multiplier, shift, low, high; } nn_product_@;

static void nn_mul_@(const OUT *first, const OUT *second, OUT *out, const nn_pairs *p, const nn_product_@ *s) {
    for (int32_t i = 0; i < p->length[0]; i++)
        for (int32_t j = 0; j < p->length[1]; j++)
            for (int32_t k = 0; k < p->length[2]; k++)
                for (int32_t l = 0; l < p->length[3]; l++) {
                    int32_t a = first[i * p->first[0] + j * p->first[1] + k * p->first[2] + l * p->first[3]];
                    int32_t b = second[i * p->second[0] + j * p->second[1] + k * p->second[2] + l * p->second[3]];
                    int32_t found = nn_rescale((a - s->first_zero) * (b - s->second_zero), s->multiplier, s->shift);
                    *out++ = (OUT)nn_clamp(found + s->out_zero, s->low, s->high);
                }
}
