/* The sine of an angle and quarters of a turn: a polynomial of what is left of the angle beyond whole quarters, which
 * needs 64 bits.  Beyond 1e9, where numbers of 32 bits are turns apart, the angle counts as 0. */
static float nn_sine(float x, int32_t quarters) {
    double turns = (x > -1e9f && x < 1e9f ? x : 0) * 0.63661977236758134308;
    int32_t whole = (int32_t)(turns + (turns < 0 ? -0.5 : 0.5));
    float rest = (float)((turns - whole) * 1.57079632679489661923), square = rest * rest;
    float sine = ((-1.9515295891e-4f * square + 8.3321608736e-3f) * square - 1.6666654611e-1f) * square * rest + rest;
    float cosine = ((2.443315711809948e-5f * square - 1.388731625493765e-3f) * square + 4.166664568298827e-2f) * square
                   * square - 0.5f * square + 1;
    uint32_t turn = (uint32_t)whole + (uint32_t)quarters;
    float found = turn & 1 ? cosine : sine;
    if (!(x - x == 0)) return x - x; /* of infinity, there is none */
    return turn & 2 ? -found : found;
}
