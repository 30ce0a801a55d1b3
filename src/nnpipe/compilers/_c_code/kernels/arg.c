/* The place of the first greatest or least number along an axis. */
static void nn_arg_@(const IN *in, OUT *out, int32_t outer, int32_t length, int32_t inner) {
    for (int32_t a = 0; a < outer; a++, in += length * inner)
        for (int32_t b = 0; b < inner; b++) {
            int32_t best = 0;
            for (int32_t i = 1; i < length; i++) if (in[i * inner + b] COMPARE in[best * inner + b]) best = i;
            *out++ = (OUT)best;
        }
}
