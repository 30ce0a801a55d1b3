static void nn_table(const void *from, void *to, int32_t count, const uint8_t *table) {
    const uint8_t *in = (const uint8_t *)from;
    uint8_t *out = (uint8_t *)to;
    for (int32_t i = 0; i < count; i++) out[i] = table[in[i]];
}
