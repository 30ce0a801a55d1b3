/* Copies the part of the input to which each row of numbers points.  Numbers outside become the nearest inside. */
static void nn_gather_nd_@(const void *from, const PLACE *places, void *to, int32_t count, int32_t axes,
                           const int32_t *lengths, int32_t part) {
    const OUT *in = (const OUT *)from;
    OUT *out = (OUT *)to;
    for (int32_t n = 0; n < count; n++) {
        int32_t start = 0;
        for (int32_t k = 0; k < axes; k++) {
            PLACE place = *places++;
            start = start * lengths[k] + (place < 0 ? 0 : place < lengths[k] ? (int32_t)place : lengths[k] - 1);
        }
        for (int32_t i = 0; i < part; i++) *out++ = in[start * part + i];
    }
}
