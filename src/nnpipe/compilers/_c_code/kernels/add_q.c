typedef struct {
    int32_t first_zero, second_zero, out_zero, left, first_multiplier, first_shift, second_multiplier, second_shift;
    int32_t out_multiplier, out_shift, sign, low, high;
} nn_sum_@;

static void nn_add_@(const OUT *first, const OUT *second, OUT *out, const nn_pairs *p, const nn_sum_@ *s) {
    for (int32_t i = 0; i < p->length[0]; i++)
        for (int32_t j = 0; j < p->length[1]; j++)
            for (int32_t k = 0; k < p->length[2]; k++)
                for (int32_t l = 0; l < p->length[3]; l++) {
                    const OUT *a = first + i * p->first[0] + j * p->first[1] + k * p->first[2] + l * p->first[3];
                    const OUT *b = second + i * p->second[0] + j * p->second[1] + k * p->second[2] + l * p->second[3];
                    int32_t x = nn_rescale((*a - s->first_zero) * (1 << s->left), s->first_multiplier, s->first_shift);
                    int32_t y = nn_rescale((*b - s->second_zero) * (1 << s->left), s->second_multiplier, s->second_shift);
                    int32_t sum = nn_rescale(x + s->sign * y, s->out_multiplier, s->out_shift) + s->out_zero;
                    *out++ = (OUT)nn_clamp(sum, s->low, s->high);
                }
}
