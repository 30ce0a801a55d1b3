static void nn_logistic_f32(const float *in, float *out, int32_t count) {
    for (int32_t i = 0; i < count; i++) out[i] = 1 / (1 + nn_exp(-in[i]));
}
