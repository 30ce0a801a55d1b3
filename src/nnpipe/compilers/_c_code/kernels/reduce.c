static void nn_reduce_@(const OUT *in, OUT *out, const nn_reduction *r) {
    NN_EACH_PLACE(r->kept, a, b, c, d) {
        const OUT *from = in + NN_AT(r->kept_steps, a, b, c, d);
        OUT found = START;
        NN_EACH_PLACE(r->reduced, e, f, g, h) {
            OUT x = from[NN_AT(r->reduced_steps, e, f, g, h)];
            found = NEXT;
        }
        *out++ = found;
    }
}
