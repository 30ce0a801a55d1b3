/* From one of two arrays, as truth values say; steps: how far their place moves along the axes. */
static void nn_select_@(const uint8_t *truth, const void *first, const void *second, void *to, const nn_pairs *p,
                        const int32_t *steps) {
    const OUT *yes = (const OUT *)first, *no = (const OUT *)second;
    OUT *out = (OUT *)to;
    NN_EACH_PLACE(p->length, i, j, k, l)
        *out++ = truth[NN_AT(steps, i, j, k, l)] ? yes[NN_AT(p->first, i, j, k, l)] : no[NN_AT(p->second, i, j, k, l)];
}
