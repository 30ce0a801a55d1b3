/* Four rows of weights at a time; rows begin at multiples of four. */
#if NN_DSP
NN_INLINE int32_t nn_dense_step(const int8_t *weights, uint32_t even, uint32_t odd, int32_t sum) {
    uint32_t four = nn_four(weights);
    return nn_two(nn_odd(four), odd, nn_two(nn_even(four), even, sum));
}
#endif

static void nn_dense_s8(const int8_t *in, const int8_t *weights, const int32_t *bias, const int32_t *multiplier,
                        const int8_t *shift, int8_t *out, int32_t batches, int32_t depth, int32_t units, const nn_zeros *z) {
    int32_t length = (depth + 3) & ~3;
    for (int32_t n = 0; n < batches; n++, in += depth, out += units)
        for (int32_t o = 0; o < units; o += 4) {
            int32_t number[4], sum[4];
            const int8_t *p, *q, *r, *s, *x = in, *end = in + (depth & ~3);
            int32_t a, b, c, d;
            for (int32_t i = 0; i < 4; i++) number[i] = o + i < units ? o + i : units - 1; /* the last one may repeat */
            p = weights + number[0] * length, q = weights + number[1] * length;
            r = weights + number[2] * length, s = weights + number[3] * length;
            a = bias[number[0]], b = bias[number[1]], c = bias[number[2]], d = bias[number[3]];
            for (; x < end; x += 4, p += 4, q += 4, r += 4, s += 4) {
#if NN_DSP
                uint32_t four = nn_four(x), even = nn_even(four), odd = nn_odd(four);
                a = nn_dense_step(p, even, odd, a), b = nn_dense_step(q, even, odd, b);
                c = nn_dense_step(r, even, odd, c), d = nn_dense_step(s, even, odd, d);
#else
                for (int32_t i = 0; i < 4; i++) a += p[i] * x[i], b += q[i] * x[i], c += r[i] * x[i], d += s[i] * x[i];
#endif
            }
            for (int32_t i = 0; i < (depth & 3); i++) a += p[i] * x[i], b += q[i] * x[i], c += r[i] * x[i], d += s[i] * x[i];
            sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
            for (int32_t i = 0; i < 4; i++) {
                int32_t found = nn_rescale_once(sum[i], multiplier[number[i]], shift[number[i]]) + z->out_zero;
                out[number[i]] = (int8_t)nn_clamp(found, z->low, z->high);
            }
        }
}
