typedef struct { int32_t in_zero, weight_zero, out_zero, low, high; } nn_zeros;
