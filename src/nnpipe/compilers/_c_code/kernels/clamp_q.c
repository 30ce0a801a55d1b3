static int32_t nn_clamp(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }
