/* Of each output, the sum over all inputs that reach it.  The axes of the weights are output channels, rows, columns,
 * input channels; padding is that of the convolution in the other direction. */
static void nn_transpose_conv_@(const IN *in, const int8_t *weights, const BIAS *bias, const int32_t *multiplier,
                                const int8_t *shift, OUT *out, const nn_window *w, const nn_zeros *z) {
    for (int32_t b = 0; b < w->batches; b++, in += w->in_h * w->in_w * w->in_c)
        for (int32_t y = w->pad_h; y < w->out_h + w->pad_h; y++)
            for (int32_t x = w->pad_w; x < w->out_w + w->pad_w; x++)
                for (int32_t o = 0; o < w->out_c; o++) {
                    SUM sum = bias ? bias[o] : 0;
                    for (int32_t i = y % w->stride_h; i < w->filter_h && i <= y; i += w->stride_h) {
                        int32_t row = (y - i) / w->stride_h;
                        if (row >= w->in_h) continue;
                        for (int32_t j = x % w->stride_w; j < w->filter_w && j <= x; j += w->stride_w) {
                            int32_t column = (x - j) / w->stride_w;
                            const int8_t *q = weights + ((o * w->filter_h + i) * w->filter_w + j) * w->in_c;
                            if (column >= w->in_w) continue;
                            for (int32_t c = 0; c < w->in_c; c++)
                                sum += (in[(row * w->in_w + column) * w->in_c + c] - z->in_zero) * q[c];
                        }
                    }
                    *out++ = (OUT)nn_clamp(z->out_zero + RESCALE(sum, multiplier[o], shift[o]), z->low, z->high);
                }
}
