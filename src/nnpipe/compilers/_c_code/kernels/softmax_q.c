/* In fixed point, as in TensorFlow Lite's reference kernel.  Powers are those of the differences to the greatest
 * number, from 0 to -255. */
static void nn_softmax_@(const OUT *in, OUT *out, int32_t rows, int32_t length, const int32_t *powers) {
    for (int32_t r = 0; r < rows; r++, in += length) {
        int32_t most = in[0], sum = 0, room, inverse, by;
        for (int32_t i = 1; i < length; i++) if (in[i] > most) most = in[i];
        for (int32_t i = 0; i < length; i++) sum += nn_rounded_shift(powers[most - in[i]], 12);
        room = nn_headroom(sum);
        inverse = nn_inverse_of_sum((int32_t)(((uint32_t)sum << room) - 0x80000000u));
        by = 12 - room + 23;
        for (int32_t i = 0; i < length; i++) {
            int32_t found = by > 31 ? 0 : nn_rescale(inverse, powers[most - in[i]], -by);
            *out++ = (OUT)nn_clamp(found + LEAST, LEAST, MOST);
        }
    }
}
