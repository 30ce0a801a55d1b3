/* One divided by the square root of a whole number, as a multiplier and a shift: Newton's method with numbers of three
 * bits before the point. */
static int32_t nn_inverse_root(int32_t x, int32_t *shift) {
    int32_t root = 1 << 28, half;
    *shift = 0;
    if (x <= 1) return INT32_MAX;
    *shift = -11;
    while (x >= 1 << 29) { x /= 4; (*shift)--; }
    while (x < 1 << 27) { x *= 4; (*shift)++; }
    half = nn_rounded_shift(x >> 1, 1);
    for (int32_t n = 0; n < 5; n++) {
        int32_t cube = nn_raised(nn_high_product(nn_high_product(root, root), root), 6);
        root = nn_raised(nn_high_product((1 << 28) + (1 << 27), root) - nn_high_product(half, cube), 3);
    }
    root = nn_high_product(root, 1518500250);
    while (*shift > 0) { root = (int32_t)((uint32_t)root << 1); (*shift)--; }
    return root;
}
