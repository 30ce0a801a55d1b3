static void nn_table(const uint8_t *in, uint8_t *out, int32_t count, const uint8_t *table) {
    for (int32_t i = 0; i < count; i++) out[i] = table[in[i]];
}
