static float nn_clamp_to_@(float x) { return x >= LEAST ? x <= MOST ? x : MOST : x < LEAST ? LEAST : 0; }
