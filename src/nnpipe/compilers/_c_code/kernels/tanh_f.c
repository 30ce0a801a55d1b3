static void nn_tanh_f32(const float *in, float *out, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        float x = in[i] < 0 ? -in[i] : in[i], square = x * x, power;
        /* A series where the difference below would lose digits. */
        float found = x < 0.1f ? x * (1 - square * (1.0f / 3 - square * (2.0f / 15 - square * (17.0f / 315)))) : 0;
        if (x >= 0.1f) { power = nn_exp(-2 * x); found = (1 - power) / (1 + power); }
        out[i] = in[i] < 0 ? -found : found;
    }
}
