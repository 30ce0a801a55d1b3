static void nn_@_f32(const float *first, const float *second, float *out, const nn_pairs *p, float low, float high) {
    NN_EACH_PLACE(p->length, i, j, k, l) {
        float a = first[NN_AT(p->first, i, j, k, l)], b = second[NN_AT(p->second, i, j, k, l)];
        *out++ = nn_clamp_f32(a OPERATOR b, low, high);
    }
}
