/* How many bits of a number that is not negative are free, with that of the sign; and one divided by one plus a number
 * between 0 and 1, neither with a bit before the point. */
static int32_t nn_headroom(int32_t x) {
    int32_t bits = 0;
    for (uint32_t rest = (uint32_t)x; rest && !(rest & 0x80000000u); rest <<= 1) bits++;
    return bits;
}

static int32_t nn_inverse_of_sum(int32_t x) {
    int32_t half = (int32_t)(((int64_t)x + INT32_MAX + 1) / 2), found;
    found = 1515870810 + nn_high_product(half, -1010580540);
    for (int32_t n = 0; n < 3; n++)
        found += nn_raised(nn_high_product(found, (1 << 29) - nn_high_product(half, found)), 2);
    return nn_raised(found, 1);
}
