static void nn_leaky_relu_s16(const int16_t *in, int16_t *out, int32_t count, int32_t multiplier, int32_t shift,
                              int32_t slope, int32_t slope_shift) {
    for (int32_t i = 0; i < count; i++) {
        int32_t found = in[i] >= 0 ? nn_rescale(in[i], multiplier, shift) : nn_rescale(in[i], slope, slope_shift);
        out[i] = (int16_t)nn_clamp(found, -32768, 32767);
    }
}
