typedef struct {
    int32_t first_zero, second_zero, out_zero, left, first_multiplier, first_shift, second_multiplier, second_shift;
    int32_t out_multiplier, out_shift, sign, low, high;
} nn_sum_@;

static void nn_add_@(const OUT *first, const OUT *second, OUT *out, const nn_pairs *p, const nn_sum_@ *s) {
    NN_EACH_PLACE(p->length, i, j, k, l) {
        int32_t a = first[NN_AT(p->first, i, j, k, l)], b = second[NN_AT(p->second, i, j, k, l)];
        int32_t x = nn_rescale((a - s->first_zero) * (1 << s->left), s->first_multiplier, s->first_shift);
        int32_t y = nn_rescale((b - s->second_zero) * (1 << s->left), s->second_multiplier, s->second_shift);
        int32_t sum = nn_rescale(x + s->sign * y, s->out_multiplier, s->out_shift) + s->out_zero;
        *out++ = (OUT)nn_clamp(sum, s->low, s->high);
    }
}
