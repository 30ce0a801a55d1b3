static void nn_mean_f32(const float *in, float *out, const nn_reduction *r, float count) {
    NN_EACH_PLACE(r->kept, a, b, c, d) {
        const float *from = in + NN_AT(r->kept_steps, a, b, c, d);
        float sum = 0;
        NN_EACH_PLACE(r->reduced, e, f, g, h) sum += from[NN_AT(r->reduced_steps, e, f, g, h)];
        *out++ = sum / count;
    }
}
