typedef struct { int32_t first_zero, second_zero, out_zero, multiplier, shift, low, high; } nn_product_@;

static void nn_mul_@(const OUT *first, const OUT *second, OUT *out, const nn_pairs *p, const nn_product_@ *s) {
    NN_EACH_PLACE(p->length, i, j, k, l) {
        int32_t a = first[NN_AT(p->first, i, j, k, l)], b = second[NN_AT(p->second, i, j, k, l)];
        int32_t found = nn_rescale((a - s->first_zero) * (b - s->second_zero), s->multiplier, s->shift);
        *out++ = (OUT)nn_clamp(found + s->out_zero, s->low, s->high);
    }
}
