/* Two channels of two pixels at a time. */
static void nn_conv_columns_@(const int16_t *columns, const int8_t *weights, const int32_t *bias,
                              const int32_t *multiplier, const int8_t *shift, int8_t *out, int8_t *other,
                              int32_t length, int32_t channels, const nn_zeros *z) {
    for (int32_t o = 0; o < channels; o += 2) {
        int32_t next = o + 1 < channels ? o + 1 : o;
        const int8_t *p = weights + o * length, *q = weights + next * length;
        int32_t a = bias[o], b = bias[next], c = a, d = b, rounding;
#if NN_DSP
        const nn_word *x = (const nn_word *)columns, *end = x + length;
        while (x < end) {
            uint32_t first = nn_four(p), second = nn_four(q);
            uint32_t p0 = nn_even(first), q0 = nn_even(second), p1 = nn_odd(first), q1 = nn_odd(second);
            a = nn_two(p0, x[0], a), b = nn_two(q0, x[0], b), c = nn_two(p0, x[1], c), d = nn_two(q0, x[1], d);
            a = nn_two(p1, x[2], a), b = nn_two(q1, x[2], b), c = nn_two(p1, x[3], c), d = nn_two(q1, x[3], d);
            p += 4, q += 4, x += 4;
        }
#else
        const int16_t *x = columns, *end = x + 2 * length;
        for (; x < end; p += 4, q += 4, x += 8) {
            a += p[0] * x[0] + p[2] * x[1] + p[1] * x[4] + p[3] * x[5];
            b += q[0] * x[0] + q[2] * x[1] + q[1] * x[4] + q[3] * x[5];
            c += p[0] * x[2] + p[2] * x[3] + p[1] * x[6] + p[3] * x[7];
            d += q[0] * x[2] + q[2] * x[3] + q[1] * x[6] + q[3] * x[7];
        }
#endif
        /* A pixel or channel that is there twice is written twice. */
        rounding = ROUNDING(z->out_zero, shift[o]);
        other[o] = (int8_t)CLAMP(REQUANTISE(c, multiplier[o], shift[o], rounding), z->low, z->high);
        out[o] = (int8_t)CLAMP(REQUANTISE(a, multiplier[o], shift[o], rounding), z->low, z->high);
        rounding = ROUNDING(z->out_zero, shift[next]);
        other[next] = (int8_t)CLAMP(REQUANTISE(d, multiplier[next], shift[next], rounding), z->low, z->high);
        out[next] = (int8_t)CLAMP(REQUANTISE(b, multiplier[next], shift[next], rounding), z->low, z->high);
    }
}

static void nn_conv_@(const int8_t *in, const int8_t *weights, const int32_t *bias, const int32_t *multiplier,
                      const int8_t *shift, int8_t *out, int16_t *columns, const nn_window *w, const nn_zeros *z) {
    int32_t length = w->filter_h * ((w->filter_w * w->in_c + 3) & ~3), row = w->out_w, pixels = row * w->out_h;
    for (int32_t b = 0; b < w->batches; b++)
        for (int32_t n = 0, y = 0, x = 0; n < pixels; n += 2) {
            int8_t *other = out;
            for (int32_t s = 0; s < 2; s++) {
                nn_column(in, columns + 2 * s, w, b, y * w->stride_h - w->pad_h, x * w->stride_w - w->pad_w, z->in_zero);
                if (n + s + 1 < pixels) {
                    if (++x == row) x = 0, y++;
                    if (s == 0) other = out + w->out_c;
                }
            }
            nn_conv_columns_@(columns, weights, bias, multiplier, shift, out, other, length, w->out_c, z);
            out += (n + 1 < pixels ? 2 : 1) * w->out_c;
        }
}
