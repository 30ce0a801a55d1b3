/* Of tensors of the same shape.  The first has the larger scale, so that its factor is one half. */
typedef struct {
    int32_t first_factor, first_offset, second_factor, second_offset, multiplier, shift, sign;
    int32_t out_zero, out_multiplier, out_shift, low, high;
} nn_sum_s8_@;

NN_APART void nn_add_s8_@(const int8_t *first, const int8_t *second, int8_t *out, int32_t count, const nn_sum_s8_@ *s) {
    nn_sum_s8_@ t = *s;
    int32_t rounding = nn_rounding(0, t.shift), out_rounding = nn_rounding(t.out_zero, t.out_shift);
    for (int32_t i = 0; i < count; i++) {
        int32_t x = first[i] * t.first_factor + t.first_offset;
        int32_t y = nn_requantise(second[i] * t.second_factor + t.second_offset, t.multiplier, t.shift, rounding);
        int32_t sum = nn_requantise(x + t.sign * y, t.out_multiplier, t.out_shift, out_rounding);
        out[i] = (int8_t)CLAMP(sum, t.low, t.high);
    }
}
