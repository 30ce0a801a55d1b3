/* Columns: what pixels' windows cover.  For vectors, a column holds the bytes as they are.  Otherwise, two pixels'
 * columns hold 16-bit numbers: of four numbers of a window, those of both pixels lie side by side in the order
 * 0 2 | 0 2 | 1 3 | 1 3, in which nn_even and nn_odd find a row of weights. */
#if NN_MVE
typedef int8_t nn_number;
#define NN_FOUR_NUMBERS 4

NN_INLINE void nn_column_put(nn_number *to, int32_t k, int32_t value) { to[k] = (nn_number)value; }

NN_INLINE void nn_column_copy(const int8_t *from, nn_number *to, int32_t count) {
#if defined(NN_MVE_IN_C)
    for (int32_t k = 0; k < ((count + 3) & ~3); k++) to[k] = k < count ? from[k] : 0;
#else
    for (; count > 0; count -= 16, from += 16, to += 16) {
        int8x16_t found = vldrbq_z_s8(from, vctp8q((uint32_t)count));
        vstrbq_p_s8(to, found, vctp8q((uint32_t)(count + 3) & ~3u));
    }
#endif
}

NN_INLINE void nn_column_fill(nn_number *to, int32_t count, int32_t value) {
#if defined(NN_MVE_IN_C)
    for (int32_t k = 0; k < ((count + 3) & ~3); k++) to[k] = (nn_number)value;
#else
    for (; count > 0; count -= 16, to += 16)
        vstrbq_p_s8(to, vdupq_n_s8((int8_t)value), vctp8q((uint32_t)(count + 3) & ~3u));
#endif
}
#else
typedef int16_t nn_number;
#define NN_FOUR_NUMBERS 8

NN_INLINE void nn_column_put(nn_number *to, int32_t k, int32_t value) {
    to[k / 4 * 8 + (k & 1) * 4 + (k >> 1 & 1)] = (int16_t)value;
}

static void nn_column_copy(const int8_t *from, nn_number *to, int32_t count) {
    int32_t k = 0;
    for (; k < count - 3; k += 4, from += 4, to += 8) {
#if NN_DSP
        uint32_t four = nn_four(from);
        ((nn_word *)to)[0] = nn_even(four);
        ((nn_word *)to)[2] = nn_odd(four);
#else
        to[0] = from[0], to[1] = from[2], to[4] = from[1], to[5] = from[3];
#endif
    }
    if (k < count)
        for (int32_t rest = 0; rest < 4; rest++) nn_column_put(to, rest, k + rest < count ? from[rest] : 0);
}

static void nn_column_fill(nn_number *to, int32_t count, int32_t value) {
#if NN_DSP
    uint32_t two = (uint32_t)(uint16_t)value * 0x10001u;
    for (int32_t k = 0; k < count; k += 4, to += 8) ((nn_word *)to)[0] = ((nn_word *)to)[2] = two;
#else
    for (int32_t k = 0; k < count; k += 4, to += 8) to[0] = to[1] = to[4] = to[5] = (int16_t)value;
#endif
}
#endif

/* Writes one pixel's column; rows of a filter begin at multiples of four, and what lies outside is the zero point. */
static void nn_column(const int8_t *in, nn_number *to, const nn_window *w, int32_t b, int32_t top, int32_t left,
                      int32_t zero) {
    int32_t c = w->in_c, run = w->filter_w * c, inside = w->step_w == 1 && left >= 0 && left + w->filter_w <= w->in_w;
    for (int32_t i = 0; i < w->filter_h; i++, to += (run + 3) / 4 * NN_FOUR_NUMBERS) {
        int32_t y = top + i * w->step_h, first = ((b * w->in_h + y) * w->in_w + left) * c;
        if (y < 0 || y >= w->in_h)
            nn_column_fill(to, run, zero);
        else if (inside)
            nn_column_copy(in + first, to, run);
        else
            for (int32_t j = 0, k = 0, x = left; j < w->filter_w; j++, x += w->step_w, k += c) {
                int32_t from = first + (x - left) * c, there = x >= 0 && x < w->in_w;
                if (c % 4)
                    for (int32_t n = 0; n < c; n++) nn_column_put(to, k + n, there ? in[from + n] : zero);
                else if (there)
                    nn_column_copy(in + from, to + k / 4 * NN_FOUR_NUMBERS, c);
                else
                    nn_column_fill(to + k / 4 * NN_FOUR_NUMBERS, c, zero);
            }
    }
}
