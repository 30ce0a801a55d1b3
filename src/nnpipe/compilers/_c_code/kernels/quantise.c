static void nn_quantise_@(const float *in, OUT *out, int32_t count, float scale, int32_t zero) {
    for (int32_t i = 0; i < count; i++) {
        float x = in[i] / scale;
        if (x > 65536.0f) x = 65536.0f;
        if (!(x > -65536.0f)) x = -65536.0f;
        int32_t whole = (int32_t)x; /* round half away from zero */
        float rest = x - (float)whole;
        *out++ = (OUT)nn_clamp(whole + (rest >= 0.5f) - (rest <= -0.5f) + zero, LEAST, MOST);
    }
}
