/* Four units at a time; rows of weights begin at multiples of four.  The last four units may overlap those before, and
 * are then computed again. */
static void nn_dense_s8(const int8_t *in, const int8_t *weights, const int32_t *bias, const int32_t *multiplier,
                        const int8_t *shift, int8_t *out, int32_t batches, int32_t depth, int32_t units,
                        const nn_zeros *z) {
    int32_t length = (depth + 3) & ~3, whole = depth & ~3, zero = z->out_zero, low = z->low, high = z->high;
    for (int32_t n = 0; n < batches; n++, in += depth, out += units)
        for (int32_t o = 0; o < units; o += 4) {
            int32_t first = o + 4 <= units || units < 4 ? o : units - 4, count = units < 4 ? units : 4, sums[5];
            int32_t done = count == 4 ? whole : 0;
            for (int32_t i = 0; i < 4; i++) sums[i] = i < count ? bias[first + i] : 0;
            sums[4] = done >> 2;
            if (done) nn_add_rows(weights + first * length, length, in, sums);
            for (int32_t i = 0; i < count; i++) {
                const int8_t *row = weights + (first + i) * length;
                int32_t sum = sums[i];
                for (int32_t k = done; k < depth; k++) sum += row[k] * in[k];
                sum = nn_rescale_once(sum, multiplier[first + i], shift[first + i]) + zero;
                out[first + i] = (int8_t)nn_clamp(sum, low, high);
            }
        }
}
