/* Three axes of matrices and the rows of the first ones; how far both move along them; columns, and the length of a sum
 * with steps: of the first along it, of the second along columns and along it. */
typedef struct { int32_t length[4], first[4], second[4], columns, depth, along, across, second_along; } nn_matmul;
