static void nn_fill_@(void *to, int32_t count, OUT value) {
    OUT *out = (OUT *)to;
    for (int32_t i = 0; i < count; i++) out[i] = value;
}
