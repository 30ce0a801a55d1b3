static void nn_clamp_all_f32(const float *in, float *out, int32_t count, float low, float high) {
    for (int32_t i = 0; i < count; i++) out[i] = nn_clamp_f32(in[i], low, high);
}
