static void nn_move_@(const void *from, void *to, const nn_moves *m) {
    const OUT *in = (const OUT *)from + m->in_start;
    OUT *out = (OUT *)to + m->out_start;
    for (int32_t a = 0; a < m->length[0]; a++)
        for (int32_t b = 0; b < m->length[1]; b++)
            for (int32_t c = 0; c < m->length[2]; c++)
                for (int32_t d = 0; d < m->length[3]; d++)
                    for (int32_t e = 0; e < m->length[4]; e++)
                        for (int32_t f = 0; f < m->length[5]; f++)
                            out[NN_AT6(m->out, a, b, c, d, e, f)] = in[NN_AT6(m->in, a, b, c, d, e, f)];
}
