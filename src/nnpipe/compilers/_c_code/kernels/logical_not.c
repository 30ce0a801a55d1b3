static void nn_logical_not(const uint8_t *in, uint8_t *out, int32_t count) {
    for (int32_t i = 0; i < count; i++) out[i] = !in[i];
}
