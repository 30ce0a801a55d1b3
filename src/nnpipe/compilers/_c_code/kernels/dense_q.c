static void nn_dense_plain_@(const IN *in, const WEIGHT *weights, const BIAS *bias, const int32_t *multiplier,
                             const int8_t *shift, OUT *out, int32_t batches, int32_t depth, int32_t units,
                             const nn_zeros *z) {
    for (int32_t b = 0; b < batches; b++, in += depth)
        for (int32_t o = 0; o < units; o++) {
            const WEIGHT *q = weights + o * depth;
            SUM sum = 0;
            for (int32_t c = 0; c < depth; c++) sum += (in[c] - z->in_zero) * (q[c] - z->weight_zero);
            if (bias) sum += bias[o];
            *out++ = (OUT)nn_clamp(z->out_zero + RESCALE(sum, multiplier[o], shift[o]), z->low, z->high);
        }
}
