/* One channel at a time, copied to a plane with its border: no window leaves it. */
#if QUICK && NN_MVE && !defined(NN_MVE_IN_C)
#define NN_TAP(at, weight) sum = vmlaq_n_s32(sum, LOAD(at), weight)

/* Four outputs of a row at a time; their inputs lie beside each other, or at a distance. */
NN_APART void nn_nines_@(const int8_t *plane, int32_t width, const int8_t *weights, int32_t bias, int32_t multiplier,
                         int32_t shift, int8_t *out, const nn_window *w, const nn_zeros *z) {
    int32_t channels = w->out_c, stride = w->stride_w, columns = w->out_w;
    int32_t a = weights[0], b = weights[1], c = weights[2], d = weights[3], e = weights[4], f = weights[5];
    int32_t g = weights[6], h = weights[7], i = weights[8];
    uint32x4_t lanes = vidupq_n_u32(0, 1), places = vmulq_n_u32(lanes, (uint32_t)channels);
    uint32x4_t steps = vmulq_n_u32(lanes, (uint32_t)stride);
    int32x4_t start = vdupq_n_s32(bias), shifts = vdupq_n_s32(shift);
    for (int32_t y = w->out_h; y > 0; y--, plane += w->stride_h * width, out += columns * channels)
        for (int32_t x = 0; x < columns; x += 4) {
            const int8_t *p = plane + x * stride, *q = p + width, *r = q + width;
            mve_pred16_t there = vctp32q((uint32_t)(columns - x));
            int32x4_t sum = start;
            if (stride == 1) {
#define LOAD(at) vldrbq_s32(at)
                NN_TAP(p, a), NN_TAP(p + 1, b), NN_TAP(p + 2, c), NN_TAP(q, d), NN_TAP(q + 1, e), NN_TAP(q + 2, f);
                NN_TAP(r, g), NN_TAP(r + 1, h), NN_TAP(r + 2, i);
#undef LOAD
            } else {
#define LOAD(at) vldrbq_gather_offset_z_s32(at, steps, there)
                NN_TAP(p, a), NN_TAP(p + 1, b), NN_TAP(p + 2, c), NN_TAP(q, d), NN_TAP(q + 1, e), NN_TAP(q + 2, f);
                NN_TAP(r, g), NN_TAP(r + 1, h), NN_TAP(r + 2, i);
#undef LOAD
            }
            sum = nn_rounded_four(vqrdmulhq_n_s32(sum, multiplier), shifts, z);
            vstrbq_scatter_offset_p_s32(out + x * channels, places, sum, there);
        }
}
#else
NN_APART void nn_nines_@(const int8_t *plane, int32_t width, const int8_t *weights, int32_t bias, int32_t multiplier,
                         int32_t shift, int8_t *out, const nn_window *w, const nn_zeros *z) {
    int32_t rounding = ROUNDING(z->out_zero, shift), channels = w->out_c, low = z->low, high = z->high;
    int32_t stride = w->stride_w, columns = w->out_w;
    nn_taps t = nn_taps_of(weights);
    for (int32_t y = w->out_h; y > 0; y--, plane += w->stride_h * width) {
        const int8_t *p = plane;
        int32_t x = columns;
        if (stride == 1)
            for (; x > 1; x -= 2, p += 2, out += 2 * channels) {
                int32_t a = bias, b = bias;
                nn_nine_twice(p, width, &t, &a, &b);
                out[0] = (int8_t)CLAMP(REQUANTISE(a, multiplier, shift, rounding), low, high);
                out[channels] = (int8_t)CLAMP(REQUANTISE(b, multiplier, shift, rounding), low, high);
            }
        for (; x > 0; x--, p += stride, out += channels)
            *out = (int8_t)CLAMP(REQUANTISE(nn_nine(p, width, &t, bias), multiplier, shift, rounding), low, high);
    }
}
#endif

NN_APART void nn_windows_@(const int8_t *plane, int32_t width, const int8_t *weights, int32_t bias, int32_t multiplier,
                           int32_t shift, int8_t *out, const nn_window *w, const nn_zeros *z) {
    int32_t rounding = ROUNDING(z->out_zero, shift), channels = w->out_c, low = z->low, high = z->high;
    int32_t rows = w->filter_h, columns = w->filter_w, step = w->step_w, down = w->step_h * width;
    for (int32_t y = 0; y < w->out_h; y++)
        for (int32_t x = 0; x < w->out_w; x++, out += channels) {
            const int8_t *p = plane + y * w->stride_h * width + x * w->stride_w, *q = weights;
            int32_t sum = bias;
            for (int32_t i = 0; i < rows; i++, p += down, q += columns)
                for (int32_t j = 0; j < columns; j++) sum += p[j * step] * q[j];
            *out = (int8_t)CLAMP(REQUANTISE(sum, multiplier, shift, rounding), low, high);
        }
}

static void nn_depthwise_@(const int8_t *in, const int8_t *weights, const int32_t *bias, const int32_t *multiplier,
                           const int8_t *shift, int8_t *out, int8_t *plane, int32_t width, int32_t height,
                           const nn_window *w, const nn_zeros *z) {
    int32_t times = w->out_c / w->in_c, taps = w->filter_h * w->filter_w, channels = w->in_c;
    int32_t rows = height - w->pad_h < w->in_h ? height - w->pad_h : w->in_h;
    int32_t columns = width - w->pad_w < w->in_w ? width - w->pad_w : w->in_w;
    int32_t nine = w->filter_h == 3 && w->filter_w == 3 && w->step_h == 1 && w->step_w == 1;
    for (int32_t n = 0; n < width * height; n++) plane[n] = (int8_t)z->in_zero;
    for (int32_t b = 0; b < w->batches; b++, in += w->in_h * w->in_w * channels, out += w->out_h * w->out_w * w->out_c)
        for (int32_t c = 0, o = 0; c < channels; c++) {
            const int8_t *from = in + c;
            int8_t *to = plane + w->pad_h * width + w->pad_w;
            for (int32_t y = rows; y > 0; y--, from += (w->in_w - columns) * channels, to += width - columns)
                for (int32_t x = columns; x > 0; x--, from += channels) *to++ = *from;
            for (int32_t t = 0; t < times; t++, o++) {
                const int8_t *q = weights + o * taps;
                if (nine)
                    nn_nines_@(plane, width, q, bias[o], multiplier[o], shift[o], out + o, w, z);
                else
                    nn_windows_@(plane, width, q, bias[o], multiplier[o], shift[o], out + o, w, z);
            }
        }
}
