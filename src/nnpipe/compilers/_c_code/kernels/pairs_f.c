static void nn_@_f32(const float *first, const float *second, float *out, const nn_pairs *p, float low, float high) {
    for (int32_t i = 0; i < p->length[0]; i++)
        for (int32_t j = 0; j < p->length[1]; j++)
            for (int32_t k = 0; k < p->length[2]; k++)
                for (int32_t l = 0; l < p->length[3]; l++) {
                    float a = first[i * p->first[0] + j * p->first[1] + k * p->first[2] + l * p->first[3]];
                    float b = second[i * p->second[0] + j * p->second[1] + k * p->second[2] + l * p->second[3]];
                    *out++ = nn_clamp_f32(a OPERATOR b, low, high);
                }
}
