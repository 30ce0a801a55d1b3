static void nn_dense_f32(const float *in, const float *weights, const float *bias, float *out, int32_t batches,
                         int32_t depth, int32_t units, float low, float high) {
    for (int32_t b = 0; b < batches; b++, in += depth)
        for (int32_t o = 0; o < units; o++) {
            float sum = 0;
            for (int32_t c = 0; c < depth; c++) sum += in[c] * weights[o * depth + c];
            *out++ = nn_clamp_f32(bias ? sum + bias[o] : sum, low, high);
        }
}
