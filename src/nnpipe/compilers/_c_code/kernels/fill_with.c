static void nn_fill_with_@(const void *from, void *to, int32_t count) {
    OUT value = *(const OUT *)from, *out = (OUT *)to;
    for (int32_t i = 0; i < count; i++) out[i] = value;
}
