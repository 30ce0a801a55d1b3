static void nn_@_s32(const int32_t *first, const int32_t *second, int32_t *out, const nn_pairs *p) {
    for (int32_t i = 0; i < p->length[0]; i++)
        for (int32_t j = 0; j < p->length[1]; j++)
            for (int32_t k = 0; k < p->length[2]; k++)
                for (int32_t l = 0; l < p->length[3]; l++) {
                    int32_t a = first[i * p->first[0] + j * p->first[1] + k * p->first[2] + l * p->first[3]];
                    int32_t b = second[i * p->second[0] + j * p->second[1] + k * p->second[2] + l * p->second[3]];
                    *out++ = COMPUTE;
                }
}
