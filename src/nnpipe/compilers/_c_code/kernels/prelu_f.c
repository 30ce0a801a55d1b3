static void nn_prelu_f32(const float *first, const float *second, float *out, const nn_pairs *p) {
    for (int32_t i = 0; i < p->length[0]; i++)
        for (int32_t j = 0; j < p->length[1]; j++)
            for (int32_t k = 0; k < p->length[2]; k++)
                for (int32_t l = 0; l < p->length[3]; l++) {
                    float a = first[i * p->first[0] + j * p->first[1] + k * p->first[2] + l * p->first[3]];
                    float b = second[i * p->second[0] + j * p->second[1] + k * p->second[2] + l * p->second[3]];
                    *out++ = a >= 0 ? a : a * b;
                }
}
