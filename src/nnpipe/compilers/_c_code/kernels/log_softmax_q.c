/* The logarithm of a sum of powers, in fixed point as in TensorFlow Lite's reference kernel: of a number with 12 bits
 * before the point, with 5.  Numbers without a bit before the point are products of 32 bits. */
static int32_t nn_log_of_sum(int32_t x) {
    const int32_t root = 1805811301, quarter = 1 << 23; /* the fourth root of a half; a quarter with six bits */
    int32_t room = nn_headroom(x), second = nn_headroom(nn_high_product(x, 1518500250)) - 1;
    int32_t r = nn_raised(nn_high_product(nn_raised(x, room - 1), 1518500250), 1), other = nn_raised(x, second);
    int32_t power = (12 - room) * (1 << 25) + quarter, otherwise = (12 - second) * (1 << 25) - quarter;
    int32_t p, q, square, above, below;
    if (other < r) r = other;
    if (otherwise > power) power = otherwise;
    p = (int32_t)(((int64_t)r + root + 1) / 2);
    q = (r - root) * 2;
    square = nn_high_product(q, q);
    above = nn_high_product(q, r) + nn_high_product(nn_high_product(q, square), 117049297);
    below = nn_high_product(p, 1057819769 + q + nn_high_product(127690142, square)) + nn_high_product(638450708, q);
    above = nn_high_product(nn_rounded_shift(above, 6), nn_inverse_of_sum(below));
    return nn_raised(nn_high_product(power, 1488522236) + above, 1);
}

/* powers: of the differences to the greatest number, from 0 to -255; factors: of a difference, and its inverse. */
static void nn_log_softmax_s8(const int8_t *in, int8_t *out, int32_t rows, int32_t length, const int32_t *powers,
                              const int32_t *factors, int32_t least) {
    for (int32_t r = 0; r < rows; r++, in += length, out += length) {
        int32_t most = -128, sum = 0, log, from;
        for (int32_t i = 0; i < length; i++) if (in[i] > most) most = in[i];
        for (int32_t i = 0; i < length; i++) sum += powers[most - in[i]];
        log = nn_log_of_sum(sum);
        from = nn_rescale(log + INT32_MIN, factors[2], factors[3]);
        if (from < least - 1) from = least - 1;
        for (int32_t i = 0; i < length; i++) {
            int32_t x = in[i] - most, found = -128;
            if (x > from) found = nn_rounded_shift(nn_rescale(x, factors[0], factors[1]) - log, 22) + 127;
            out[i] = (int8_t)nn_clamp(found, -128, 127);
        }
    }
}
