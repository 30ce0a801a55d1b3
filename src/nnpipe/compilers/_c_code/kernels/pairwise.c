static void nn_@(const IN *first, const IN *second, OUT *out, const nn_pairs *p) {
    NN_EACH_PLACE(p->length, i, j, k, l) {
        IN a = first[NN_AT(p->first, i, j, k, l)], b = second[NN_AT(p->second, i, j, k, l)];
        *out++ = COMPUTE;
    }
}
