/* Copies an array into a larger one and mirrors it at its borders. */
static void nn_mirror_pad_@(const void *from, void *to, const int32_t *size, int32_t without) {
    const OUT *in = (const OUT *)from;
    OUT *out = (OUT *)to;
    const int32_t *length = size + 4, *before = size + 8, *steps = size + 12; /* after the lengths of the output */
    NN_EACH_PLACE(size, i, j, k, l)
        *out++ = in[nn_mirrored(i - before[0], length[0], without) * steps[0]
                    + nn_mirrored(j - before[1], length[1], without) * steps[1]
                    + nn_mirrored(k - before[2], length[2], without) * steps[2]
                    + nn_mirrored(l - before[3], length[3], without) * steps[3]];
}
