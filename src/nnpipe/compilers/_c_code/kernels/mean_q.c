typedef struct { int32_t in_zeros, multiplier, shift, out_zero; } nn_mean_@;

static void nn_mean_of_@(const OUT *in, OUT *out, const nn_reduction *r, const nn_mean_@ *m) {
    NN_EACH_PLACE(r->kept, a, b, c, d) {
        const OUT *from = in + NN_AT(r->kept_steps, a, b, c, d);
        int32_t sum = 0;
        NN_EACH_PLACE(r->reduced, e, f, g, h) sum += from[NN_AT(r->reduced_steps, e, f, g, h)];
        sum = nn_rescale(sum - m->in_zeros, m->multiplier, m->shift) + m->out_zero;
        *out++ = (OUT)nn_clamp(sum, LEAST, MOST);
    }
}
