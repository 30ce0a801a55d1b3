/* Zero points and factors that bring two inputs to one scale. */
typedef struct { int32_t zero, second_zero, multiplier, shift, second_multiplier, second_shift; } nn_scales;
