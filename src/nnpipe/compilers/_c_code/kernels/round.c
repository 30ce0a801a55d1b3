/* The nearest whole number, halves to the even one. */
static float nn_round(float x) {
    float low = nn_floor(x), rest = x - low;
    if (rest == 0.5f) return low - 2 * nn_floor(low * 0.5f) != 0 ? low + 1 : low;
    return rest > 0.5f ? low + 1 : low;
}
