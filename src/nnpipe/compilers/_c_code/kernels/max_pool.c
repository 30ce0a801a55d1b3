static void nn_max_pool_@(const OUT *in, OUT *out, const nn_window *w, NUMBER low, NUMBER high) {
    for (int32_t b = 0; b < w->batches; b++)
        for (int32_t y = 0; y < w->out_h; y++)
            for (int32_t x = 0; x < w->out_w; x++) {
                int32_t top = y * w->stride_h - w->pad_h, left = x * w->stride_w - w->pad_w;
                int32_t y0 = nn_from(top, 1), y1 = nn_to(top, 1, w->in_h, w->filter_h);
                int32_t x0 = nn_from(left, 1), x1 = nn_to(left, 1, w->in_w, w->filter_w);
                for (int32_t c = 0; c < w->in_c; c++) {
                    OUT most = in[((b * w->in_h + top + y0) * w->in_w + left + x0) * w->in_c + c];
                    for (int32_t i = y0; i < y1; i++)
                        for (int32_t j = x0; j < x1; j++) {
                            OUT value = in[((b * w->in_h + top + i) * w->in_w + left + j) * w->in_c + c];
                            if (value > most) most = value;
                        }
                    *out++ = (OUT)CLAMP(most, low, high);
                }
            }
}
