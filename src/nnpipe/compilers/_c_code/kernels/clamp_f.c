static float nn_clamp_f32(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
