static void nn_matmul_f32(const float *first, const float *second, float *out, const nn_matmul *m) {
    NN_EACH_PLACE(m->length, i, j, k, l) {
        const float *x = first + NN_AT(m->first, i, j, k, l), *y = second + NN_AT(m->second, i, j, k, l);
        for (int32_t c = 0; c < m->columns; c++, y += m->across) {
            float sum = 0;
            for (int32_t d = 0; d < m->depth; d++) sum += x[d * m->along] * y[d * m->second_along];
            *out++ = sum;
        }
    }
}
