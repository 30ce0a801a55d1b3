static void nn_svdf_f32(const float *in, const float *features, const float *times, const float *bias, float *state,
                        float *out, const nn_svdf *s, float low, float high) {
    for (int32_t b = 0; b < s->batches; b++, in += s->depth)
        for (int32_t u = 0; u < s->units; u++) {
            float total = 0;
            for (int32_t r = u * s->rank; r < (u + 1) * s->rank; r++, state += s->memory) {
                float sum = 0;
                for (int32_t i = 0; i < s->depth; i++) sum += features[r * s->depth + i] * in[i];
                for (int32_t m = 1; m < s->memory; m++) state[m - 1] = state[m];
                state[s->memory - 1] = sum;
                for (int32_t m = 0; m < s->memory; m++) total += times[r * s->memory + m] * state[m];
            }
            *out++ = nn_clamp_f32(bias ? total + bias[u] : total, low, high);
        }
}
