/* Newton's method from a start that has half of the exponent; with 64 bits, so that the result is rounded once. */
static float nn_sqrt(float of) {
    union { float real; uint32_t bits; } start;
    int32_t tiny = of < 1.17549435e-38f;
    double x = tiny ? of * 281474976710656.0 : of, root;
    if (!(of > 0) || of > 3.40282347e38f) return of < 0 ? (of - of) / (of - of) : of;
    start.real = (float)x;
    start.bits = (start.bits >> 1) + 0x1FBD1DF5u;
    root = start.real;
    for (int32_t n = 0; n < 4; n++) root = 0.5 * (root + x / root);
    return (float)(tiny ? root / 16777216.0 : root);
}
