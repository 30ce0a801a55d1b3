typedef struct { int32_t batches, depth, units, rank, memory; } nn_svdf;
