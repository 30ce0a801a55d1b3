static void nn_dequantise_@(const IN *in, float *out, int32_t count, double scale, int32_t zero) {
    for (int32_t i = 0; i < count; i++) out[i] = (float)(scale * (in[i] - zero));
}
