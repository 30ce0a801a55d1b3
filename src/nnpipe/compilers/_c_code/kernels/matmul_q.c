static void nn_matmul_@(const IN *first, const IN *second, IN *out, const nn_matmul *m, int32_t zero,
                        int32_t second_zero, int32_t multiplier, int32_t shift, int32_t out_zero) {
    NN_EACH_PLACE(m->length, i, j, k, l) {
        const IN *x = first + NN_AT(m->first, i, j, k, l), *y = second + NN_AT(m->second, i, j, k, l);
        for (int32_t c = 0; c < m->columns; c++, y += m->across) {
            SUM sum = 0;
            for (int32_t d = 0; d < m->depth; d++)
                sum += (x[d * m->along] - zero) * (y[d * m->second_along] - second_zero);
            *out++ = (IN)nn_clamp(RESCALE(sum, multiplier, shift) + out_zero, LEAST, MOST);
        }
    }
}
