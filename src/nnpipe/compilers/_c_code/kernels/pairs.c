/* Positions of two broadcast inputs: lengths of four axes, and how far each input moves along them. */
typedef struct { int32_t length[4], first[4], second[4]; } nn_pairs;
