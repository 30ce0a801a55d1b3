/* Six axes: lengths, how far the places in both arrays move along them, and where they start, in elements. */
typedef struct { int32_t length[6], in[6], out[6], in_start, out_start; } nn_moves;
