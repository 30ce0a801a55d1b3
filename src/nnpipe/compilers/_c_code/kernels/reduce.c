static void nn_reduce_@(const OUT *in, OUT *out, const nn_reduction *r) {
    const int32_t *k = r->kept, *s = r->kept_steps, *n = r->reduced, *t = r->reduced_steps;
    for (int32_t a = 0; a < k[0]; a++)
        for (int32_t b = 0; b < k[1]; b++)
            for (int32_t c = 0; c < k[2]; c++)
                for (int32_t d = 0; d < k[3]; d++) {
                    const OUT *from = in + a * s[0] + b * s[1] + c * s[2] + d * s[3];
                    OUT found = START;
                    for (int32_t e = 0; e < n[0]; e++)
                        for (int32_t f = 0; f < n[1]; f++)
                            for (int32_t g = 0; g < n[2]; g++)
                                for (int32_t h = 0; h < n[3]; h++) {
                                    OUT x = from[e * t[0] + f * t[1] + g * t[2] + h * t[3]];
                                    found = NEXT;
                                }
                    *out++ = found;
                }
}
