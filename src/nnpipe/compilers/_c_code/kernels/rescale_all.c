static void nn_rescale_all_@(const IN *in, OUT *out, int32_t count, int32_t zero, int32_t multiplier, int32_t shift,
                             int32_t out_zero) {
    for (int32_t i = 0; i < count; i++)
        out[i] = (OUT)nn_clamp(nn_rescale(in[i] - zero, multiplier, shift) + out_zero, LEAST, MOST);
}
