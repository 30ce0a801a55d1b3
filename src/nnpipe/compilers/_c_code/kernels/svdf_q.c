/* Each filter keeps the last results of its features, the newest at the end; sums wrap around. */
static void nn_svdf_s8(const int8_t *in, const int8_t *features, const int16_t *times, const int32_t *bias,
                       int16_t *state, int8_t *out, const nn_svdf *s, const int32_t *f) {
    for (int32_t b = 0; b < s->batches; b++, in += s->depth)
        for (int32_t u = 0; u < s->units; u++) {
            uint32_t total = bias ? (uint32_t)bias[u] : 0;
            for (int32_t r = u * s->rank; r < (u + 1) * s->rank; r++, state += s->memory) {
                int32_t sum = 0; /* f: zero point, factor of features, factor of the output, its zero point */
                for (int32_t i = 0; i < s->depth; i++) sum += features[r * s->depth + i] * (in[i] - f[0]);
                for (int32_t m = 1; m < s->memory; m++) state[m - 1] = state[m];
                state[s->memory - 1] = (int16_t)nn_clamp(nn_rescale(sum, f[1], f[2]), -32768, 32767);
                for (int32_t m = 0; m < s->memory; m++) total += (uint32_t)(times[r * s->memory + m] * state[m]);
            }
            *out++ = (int8_t)nn_clamp(nn_rescale((int32_t)total, f[3], f[4]) + f[5], -128, 127);
        }
}
