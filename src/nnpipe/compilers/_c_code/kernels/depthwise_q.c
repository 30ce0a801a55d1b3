static void nn_depthwise_plain_@(const IN *in, const WEIGHT *weights, const BIAS *bias, const int32_t *multiplier,
                                 const int8_t *shift, OUT *out, const nn_window *w, const nn_zeros *z) {
    int32_t times = w->out_c / w->in_c;
    for (int32_t b = 0; b < w->batches; b++)
        for (int32_t y = 0; y < w->out_h; y++)
            for (int32_t x = 0; x < w->out_w; x++) {
                int32_t top = y * w->stride_h - w->pad_h, left = x * w->stride_w - w->pad_w;
                int32_t y0 = nn_from(top, w->step_h), y1 = nn_to(top, w->step_h, w->in_h, w->filter_h);
                int32_t x0 = nn_from(left, w->step_w), x1 = nn_to(left, w->step_w, w->in_w, w->filter_w);
                for (int32_t o = 0; o < w->out_c; o++) {
                    SUM sum = 0;
                    for (int32_t i = y0; i < y1; i++)
                        for (int32_t j = x0; j < x1; j++)
                            sum += (in[NN_PIXEL(w, b, top + i * w->step_h, left + j * w->step_w) + o / times]
                                    - z->in_zero) * (weights[(i * w->filter_w + j) * w->out_c + o] - z->weight_zero);
                    if (bias) sum += bias[o];
                    *out++ = (OUT)nn_clamp(z->out_zero + RESCALE(sum, multiplier[o], shift[o]), z->low, z->high);
                }
            }
}
