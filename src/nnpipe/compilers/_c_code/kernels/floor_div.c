/* Rounded down; 0 where nothing can be computed. */
static int32_t nn_floor_quotient(int32_t a, int32_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int32_t)(0u - (uint32_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
