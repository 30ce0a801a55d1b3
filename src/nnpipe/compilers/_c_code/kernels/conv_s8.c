/* Two channels of two pixels at a time. */
NN_APART void nn_conv_columns_@(const int16_t *columns, const int8_t *weights, const int32_t *bias,
                                const int32_t *multiplier, const int8_t *shift, int8_t *out, int8_t *other,
                                int32_t length, int32_t channels, const nn_zeros *z) {
    int32_t zero = z->out_zero, low = z->low, high = z->high;
    for (int32_t o = 0; o < channels; o += 2) {
        int32_t next = o + 1 < channels ? o + 1 : o, sums[5], m = multiplier[o], s = shift[o], rounding;
        sums[0] = sums[2] = bias[o], sums[1] = sums[3] = bias[next], sums[4] = length >> 2;
        nn_add_products(weights + o * length, weights + next * length, columns, sums);
        /* A pixel or channel that is there twice is written twice. */
        rounding = ROUNDING(zero, s);
        out[o] = (int8_t)CLAMP(REQUANTISE(sums[0], m, s, rounding), low, high);
        other[o] = (int8_t)CLAMP(REQUANTISE(sums[2], m, s, rounding), low, high);
        m = multiplier[next], s = shift[next], rounding = ROUNDING(zero, s);
        out[next] = (int8_t)CLAMP(REQUANTISE(sums[1], m, s, rounding), low, high);
        other[next] = (int8_t)CLAMP(REQUANTISE(sums[3], m, s, rounding), low, high);
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
