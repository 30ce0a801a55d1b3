static void nn_running_sum_@(const OUT *in, OUT *out, int32_t outer, int32_t length, int32_t inner, int32_t exclusive,
                             int32_t reverse) {
    for (int32_t a = 0; a < outer; a++, in += length * inner, out += length * inner)
        for (int32_t b = 0; b < inner; b++) {
            SUM sum = 0;
            for (int32_t n = 0; n < length; n++) {
                int32_t at = (reverse ? length - 1 - n : n) * inner + b;
                SUM next = sum + (SUM)in[at];
                out[at] = (OUT)(exclusive ? sum : next);
                sum = next;
            }
        }
}
