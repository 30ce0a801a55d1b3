static void nn_cast_@(const IN *in, OUT *out, int32_t count) {
    for (int32_t i = 0; i < count; i++) out[i] = (OUT)(CAST(in[i]));
}
