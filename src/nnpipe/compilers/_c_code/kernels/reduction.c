/* Axes that stay and axes that are reduced: lengths, and how far the place in the input moves along them. */
typedef struct { int32_t kept[4], kept_steps[4], reduced[4], reduced_steps[4]; } nn_reduction;
