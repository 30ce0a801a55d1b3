/* All places of an array of up to four axes in order, and how far one lies from the start. */
#define NN_EACH_PLACE(lengths, i, j, k, l) \
    for (int32_t i = 0; i < (lengths)[0]; i++) \
        for (int32_t j = 0; j < (lengths)[1]; j++) \
            for (int32_t k = 0; k < (lengths)[2]; k++) \
                for (int32_t l = 0; l < (lengths)[3]; l++)
#define NN_AT(steps, i, j, k, l) (i * (steps)[0] + j * (steps)[1] + k * (steps)[2] + l * (steps)[3])
