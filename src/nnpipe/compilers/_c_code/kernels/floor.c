static float nn_floor(float x) {
    float whole;
    if (!(x > -8388608.0f && x < 8388608.0f)) return x; /* whole already, or not a number */
    whole = (float)(int32_t)x;
    return whole > x ? whole - 1 : whole;
}
