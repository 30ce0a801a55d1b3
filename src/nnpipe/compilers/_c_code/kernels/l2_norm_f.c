static void nn_l2_norm_f32(const float *in, float *out, int32_t rows, int32_t length) {
    for (int32_t r = 0; r < rows; r++, in += length, out += length) {
        float sum = 0, norm;
        for (int32_t i = 0; i < length; i++) sum += in[i] * in[i];
        norm = nn_sqrt(sum);
        if (norm < 1e-6f) norm = 1e-6f;
        for (int32_t i = 0; i < length; i++) out[i] = in[i] / norm;
    }
}
