static void nn_l2_norm_s8(const int8_t *in, int8_t *out, int32_t rows, int32_t length, int32_t zero) {
    for (int32_t r = 0; r < rows; r++, in += length, out += length) {
        int32_t sum = 0, multiplier, shift;
        for (int32_t i = 0; i < length; i++) sum += (in[i] - zero) * (in[i] - zero);
        multiplier = nn_inverse_root(sum, &shift);
        for (int32_t i = 0; i < length; i++)
            out[i] = (int8_t)nn_clamp(nn_rescale(in[i] - zero, multiplier, shift + 7), -128, 127);
    }
}
