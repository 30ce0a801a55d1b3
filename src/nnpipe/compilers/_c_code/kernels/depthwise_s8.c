/* One channel at a time, copied to a plane with its border: no window leaves it. */
static void nn_taps_@(const int8_t *plane, int32_t width, const int8_t *weights, int32_t bias, int32_t multiplier,
                      int32_t shift, int8_t *out, const nn_window *w, const nn_zeros *z) {
    int32_t rounding = ROUNDING(z->out_zero, shift), channels = w->out_c, low = z->low, high = z->high;
#if NN_DSP
    if (w->filter_h == 3 && w->filter_w == 3 && w->step_h == 1 && w->step_w == 1) {
        uint32_t s0 = nn_even(nn_four(weights)), s1 = nn_even(nn_four(weights + 3)), s2 = nn_even(nn_four(weights + 6));
        uint32_t m0 = (uint32_t)weights[1], m1 = (uint32_t)weights[4], m2 = (uint32_t)weights[7];
        for (int32_t y = 0; y < w->out_h; y++) {
            const int8_t *p = plane + y * w->stride_h * width;
            if (w->stride_w == 1)
                for (int32_t x = 0; x < w->out_w; x += 2, p += 2) {
                    int32_t a = bias, b = bias;
                    uint32_t four = nn_four(p), even = nn_even(four), odd = nn_odd(four);
                    a = nn_low_low(odd, m0, nn_two(even, s0, a)), b = nn_high_low(even, m0, nn_two(odd, s0, b));
                    four = nn_four(p + width), even = nn_even(four), odd = nn_odd(four);
                    a = nn_low_low(odd, m1, nn_two(even, s1, a)), b = nn_high_low(even, m1, nn_two(odd, s1, b));
                    four = nn_four(p + 2 * width), even = nn_even(four), odd = nn_odd(four);
                    a = nn_low_low(odd, m2, nn_two(even, s2, a)), b = nn_high_low(even, m2, nn_two(odd, s2, b));
                    *out = (int8_t)CLAMP(REQUANTISE(a, multiplier, shift, rounding), low, high), out += channels;
                    if (x + 1 == w->out_w) break;
                    *out = (int8_t)CLAMP(REQUANTISE(b, multiplier, shift, rounding), low, high), out += channels;
                }
            else
                for (int32_t x = 0; x < w->out_w; x++, p += w->stride_w) {
                    uint32_t first = nn_four(p), second = nn_four(p + width), third = nn_four(p + 2 * width);
                    int32_t a = nn_low_low(nn_odd(first), m0, nn_two(nn_even(first), s0, bias));
                    a = nn_low_low(nn_odd(second), m1, nn_two(nn_even(second), s1, a));
                    a = nn_low_low(nn_odd(third), m2, nn_two(nn_even(third), s2, a));
                    *out = (int8_t)CLAMP(REQUANTISE(a, multiplier, shift, rounding), low, high), out += channels;
                }
        }
        return;
    }
#endif
    for (int32_t y = 0; y < w->out_h; y++)
        for (int32_t x = 0; x < w->out_w; x++, out += channels) {
            const int8_t *p = plane + y * w->stride_h * width + x * w->stride_w, *q = weights;
            int32_t sum = bias;
            for (int32_t i = 0; i < w->filter_h; i++, p += w->step_h * width, q += w->filter_w)
                for (int32_t j = 0; j < w->filter_w; j++) sum += p[j * w->step_w] * q[j];
            *out = (int8_t)CLAMP(REQUANTISE(sum, multiplier, shift, rounding), low, high);
        }
}

static void nn_depthwise_@(const int8_t *in, const int8_t *weights, const int32_t *bias, const int32_t *multiplier,
                           const int8_t *shift, int8_t *out, int8_t *plane, int32_t width, int32_t height,
                           const nn_window *w, const nn_zeros *z) {
    int32_t times = w->out_c / w->in_c, taps = w->filter_h * w->filter_w, channels = w->in_c;
    int32_t rows = height - w->pad_h < w->in_h ? height - w->pad_h : w->in_h;
    int32_t columns = width - w->pad_w < w->in_w ? width - w->pad_w : w->in_w;
    for (int32_t n = 0; n < width * height; n++) plane[n] = (int8_t)z->in_zero;
    for (int32_t b = 0; b < w->batches; b++, in += w->in_h * w->in_w * channels, out += w->out_h * w->out_w * w->out_c)
        for (int32_t c = 0, o = 0; c < channels; c++) {
            for (int32_t y = 0; y < rows; y++) {
                const int8_t *from = in + y * w->in_w * channels + c;
                int8_t *to = plane + (y + w->pad_h) * width + w->pad_w;
                for (int32_t x = 0; x < columns; x++) to[x] = from[x * channels];
            }
            for (int32_t t = 0; t < times; t++, o++)
                nn_taps_@(plane, width, weights + o * taps, bias[o], multiplier[o], shift[o], out + o, w, z);
        }
}
