/* Six axes: lengths, how far the places in both arrays move along them, and where they start, in elements. */
typedef struct { int32_t length[6], in[6], out[6], in_start, out_start; } nn_moves;
#define NN_AT6(steps, a, b, c, d, e, f) \
    (a * (steps)[0] + b * (steps)[1] + c * (steps)[2] + d * (steps)[3] + e * (steps)[4] + f * (steps)[5])
