static void nn_average_pool_@(const OUT *in, OUT *out, const nn_window *w, int32_t low, int32_t high) {
    for (int32_t b = 0; b < w->batches; b++)
        for (int32_t y = 0; y < w->out_h; y++)
            for (int32_t x = 0; x < w->out_w; x++) {
                int32_t top = y * w->stride_h - w->pad_h, left = x * w->stride_w - w->pad_w;
                int32_t y0 = nn_from(top, 1), y1 = nn_to(top, 1, w->in_h, w->filter_h);
                int32_t x0 = nn_from(left, 1), x1 = nn_to(left, 1, w->in_w, w->filter_w);
                int32_t count = (y1 - y0) * (x1 - x0);
                for (int32_t c = 0; c < w->in_c; c++) {
                    int32_t sum = 0;
                    for (int32_t i = y0; i < y1; i++)
                        for (int32_t j = x0; j < x1; j++) sum += in[NN_PIXEL(w, b, top + i, left + j) + c];
                    sum = sum > 0 ? (sum + count / 2) / count : (sum - count / 2) / count;
                    *out++ = (OUT)nn_clamp(sum, low, high);
                }
            }
}
