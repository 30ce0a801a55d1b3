/* Of each row and column of the output: the two of the input between which it lies, how far it is from the first. */
static void nn_resize_bilinear_@(const OUT *in, OUT *out, const int32_t *size, const int32_t *rows, const FACTOR *down,
                                 const int32_t *columns, const FACTOR *right) {
    int32_t channels = size[5]; /* batches, input rows and columns, output rows and columns, channels */
    for (int32_t b = 0; b < size[0]; b++, in += size[1] * size[2] * channels)
        for (int32_t y = 0; y < size[3]; y++)
            for (int32_t x = 0; x < size[4]; x++)
                for (int32_t c = 0; c < channels; c++) {
                    SUM p = in[(rows[2 * y] * size[2] + columns[2 * x]) * channels + c];
                    SUM q = in[(rows[2 * y + 1] * size[2] + columns[2 * x]) * channels + c];
                    SUM r = in[(rows[2 * y] * size[2] + columns[2 * x + 1]) * channels + c];
                    SUM s = in[(rows[2 * y + 1] * size[2] + columns[2 * x + 1]) * channels + c];
                    SUM sum = p * (ONE - down[y]) * (ONE - right[x]) + q * down[y] * (ONE - right[x]) +
                              r * (ONE - down[y]) * right[x] + s * down[y] * right[x];
                    *out++ = (OUT)(ROUNDED);
                }
}
