#if NN_MVE
/* Four channels of a pixel at a time.  The last four may overlap those before, and are then computed again. */
NN_APART void nn_conv_columns_@(const int8_t *column, const int8_t *weights, const int32_t *bias,
                                const int32_t *multiplier, const int8_t *shift, int8_t *out, int32_t length,
                                int32_t channels, const nn_zeros *z) {
    if (channels < 4) {
        for (int32_t o = 0; o < channels; o++, weights += length) {
            int32_t sum = bias[o];
            for (int32_t k = 0; k < length; k++) sum += weights[k] * column[k];
            sum = REQUANTISE(sum, multiplier[o], shift[o], ROUNDING(z->out_zero, shift[o]));
            out[o] = (int8_t)CLAMP(sum, z->low, z->high);
        }
        return;
    }
    for (int32_t o = 0; o < channels; o += 4) {
        int32_t first = o + 4 <= channels ? o : channels - 4, sums[5];
        sums[0] = bias[first], sums[1] = bias[first + 1], sums[2] = bias[first + 2], sums[3] = bias[first + 3];
        sums[4] = length >> 2;
        nn_add_rows(weights + first * length, length, column, sums);
#if QUICK && !defined(NN_MVE_IN_C)
        int32x4_t x = vqrdmulhq_s32(vldrwq_s32(sums), vldrwq_s32(multiplier + first));
        vstrbq_s32(out + first, nn_rounded_four(x, vldrbq_s32(shift + first), z));
#else
        for (int32_t i = first; i < first + 4; i++) {
            int32_t found = REQUANTISE(sums[i - first], multiplier[i], shift[i], ROUNDING(z->out_zero, shift[i]));
            out[i] = (int8_t)CLAMP(found, z->low, z->high);
        }
#endif
    }
}

static void nn_conv_@(const int8_t *in, const int8_t *weights, const int32_t *bias, const int32_t *multiplier,
                      const int8_t *shift, int8_t *out, nn_number *columns, const nn_window *w, const nn_zeros *z) {
    int32_t row = w->filter_w * w->in_c, length = w->filter_h * ((row + 3) & ~3);
    int32_t there = w->filter_h == 1 && w->filter_w == 1 && length == row; /* the column lies in the input */
    for (int32_t b = 0; b < w->batches; b++)
        for (int32_t y = 0; y < w->out_h; y++)
            for (int32_t x = 0; x < w->out_w; x++, out += w->out_c) {
                int32_t top = y * w->stride_h - w->pad_h, left = x * w->stride_w - w->pad_w;
                const int8_t *column = columns;
                if (there)
                    column = in + ((b * w->in_h + top) * w->in_w + left) * w->in_c;
                else
                    nn_column(in, columns, w, b, top, left, z->in_zero);
                nn_conv_columns_@(column, weights, bias, multiplier, shift, out, length, w->out_c, z);
            }
}
#else
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
                      const int8_t *shift, int8_t *out, nn_number *columns, const nn_window *w, const nn_zeros *z) {
    int32_t length = w->filter_h * ((w->filter_w * w->in_c + 3) & ~3), row = w->out_w, pixels = row * w->out_h;
    for (int32_t b = 0; b < w->batches; b++)
        for (int32_t n = 0, y = 0, x = 0; n < pixels; n += 2) {
            int8_t *other = out;
            for (int32_t s = 0; s < 2; s++) {
                nn_column(in, columns + 2 * s, w, b, y * w->stride_h - w->pad_h, x * w->stride_w - w->pad_w,
                          z->in_zero);
                if (n + s + 1 < pixels) {
                    if (++x == row) x = 0, y++;
                    if (s == 0) other = out + w->out_c;
                }
            }
            nn_conv_columns_@(columns, weights, bias, multiplier, shift, out, other, length, w->out_c, z);
            out += (n + 1 < pixels ? 2 : 1) * w->out_c;
        }
}
#endif
