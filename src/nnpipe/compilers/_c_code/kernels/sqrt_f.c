/* Newton's method from a start that has half of the exponent; with 64 bits, so that the result is rounded once. */
static void nn_sqrt_f32(const float *in, float *out, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        union { float real; uint32_t bits; } start;
        int32_t tiny = in[i] < 1.17549435e-38f;
        double x = tiny ? in[i] * 281474976710656.0 : in[i], root;
        if (!(in[i] > 0) || in[i] > 3.40282347e38f) {
            out[i] = in[i] < 0 ? (in[i] - in[i]) / (in[i] - in[i]) : in[i];
            continue;
        }
        start.real = (float)x;
        start.bits = (start.bits >> 1) + 0x1FBD1DF5u;
        root = start.real;
        for (int32_t n = 0; n < 4; n++) root = 0.5 * (root + x / root);
        out[i] = (float)(tiny ? root / 16777216.0 : root);
    }
}
