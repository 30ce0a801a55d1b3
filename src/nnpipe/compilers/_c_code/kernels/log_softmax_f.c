static void nn_log_softmax_f32(const float *in, float *out, int32_t rows, int32_t length) {
    for (int32_t r = 0; r < rows; r++, in += length, out += length) {
        float most = in[0], sum = 0;
        for (int32_t i = 1; i < length; i++) if (in[i] > most) most = in[i];
        for (int32_t i = 0; i < length; i++) sum += nn_exp(in[i] - most);
        sum = nn_log(sum);
        for (int32_t i = 0; i < length; i++) out[i] = in[i] - most - sum;
    }
}
