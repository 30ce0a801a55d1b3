static void nn_softmax_@(const OUT *in, OUT *out, int32_t rows, int32_t length, const float *table, float scale,
                         int32_t zero) {
    for (int32_t r = 0; r < rows; r++, in += length) {
        OUT most = in[0];
        float sum = 0, factor;
        const float *shifted;
        for (int32_t i = 1; i < length; i++) if (in[i] > most) most = in[i];
        shifted = table + (255 - most);
        for (int32_t i = 0; i < length; i++) sum += shifted[in[i]];
        factor = 1.0f / (sum * scale);
        for (int32_t i = 0; i < length; i++) {
            int32_t found = (int32_t)(shifted[in[i]] * factor + 0.5f) + zero;
            *out++ = (OUT)nn_clamp(found, LEAST, MOST);
        }
    }
}
