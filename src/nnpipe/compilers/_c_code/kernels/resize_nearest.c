static void nn_resize_nearest_@(const void *from, void *to, const int32_t *size, const int32_t *rows,
                               const int32_t *columns) {
    const OUT *in = (const OUT *)from;
    OUT *out = (OUT *)to;
    int32_t channels = size[5]; /* batches, input rows and columns, output rows and columns, channels */
    for (int32_t b = 0; b < size[0]; b++, in += size[1] * size[2] * channels)
        for (int32_t y = 0; y < size[3]; y++)
            for (int32_t x = 0; x < size[4]; x++)
                for (int32_t c = 0; c < channels; c++) *out++ = in[(rows[y] * size[2] + columns[x]) * channels + c];
}
