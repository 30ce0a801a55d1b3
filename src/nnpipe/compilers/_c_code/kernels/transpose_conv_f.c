static void nn_transpose_conv_f32(const float *in, const float *weights, const float *bias, float *out,
                                  const nn_window *w, float low, float high) {
    for (int32_t b = 0; b < w->batches; b++, in += w->in_h * w->in_w * w->in_c)
        for (int32_t y = w->pad_h; y < w->out_h + w->pad_h; y++)
            for (int32_t x = w->pad_w; x < w->out_w + w->pad_w; x++)
                for (int32_t o = 0; o < w->out_c; o++) {
                    float sum = 0;
                    for (int32_t i = y % w->stride_h; i < w->filter_h && i <= y; i += w->stride_h)
                        for (int32_t j = x % w->stride_w; j < w->filter_w && j <= x; j += w->stride_w) {
                            int32_t row = (y - i) / w->stride_h, column = (x - j) / w->stride_w;
                            const float *q = weights + ((o * w->filter_h + i) * w->filter_w + j) * w->in_c;
                            if (row >= w->in_h || column >= w->in_w) continue;
                            for (int32_t c = 0; c < w->in_c; c++)
                                sum += in[(row * w->in_w + column) * w->in_c + c] * q[c];
                        }
                    *out++ = nn_clamp_f32(bias ? sum + bias[o] : sum, low, high);
                }
}
