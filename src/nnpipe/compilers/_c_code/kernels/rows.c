/* Adds the products of four rows of weights and an input to four sums.  The last of the five numbers is the length, in
 * fours. */
#if NN_MVE && !defined(NN_MVE_IN_C)
NN_NAKED void nn_add_rows(NN_ARGUMENT const int8_t *weights, NN_ARGUMENT int32_t length, NN_ARGUMENT const int8_t *in,
                          NN_ARGUMENT int32_t sums[5]) {
    __asm__("push {r3-r11, lr}\n ldr r4, [r3]\n ldr r6, [r3, #4]\n ldr r8, [r3, #8]\n ldr r10, [r3, #12]\n"
            "ldr r12, [r3, #16]\n add r5, r0, r1\n add r7, r5, r1\n add r9, r7, r1\n lsl r12, r12, #2\n"
            "wlstp.8 lr, r12, 2f\n 1: vldrb.u8 q0, [r2], #16\n vldrb.u8 q1, [r0], #16\n vmladava.s8 r4, q0, q1\n"
            "vldrb.u8 q2, [r5], #16\n vmladava.s8 r6, q0, q2\n vldrb.u8 q1, [r7], #16\n vmladava.s8 r8, q0, q1\n"
            "vldrb.u8 q2, [r9], #16\n vmladava.s8 r10, q0, q2\n letp lr, 1b\n 2:\n"
            "str r4, [r3]\n str r6, [r3, #4]\n str r8, [r3, #8]\n str r10, [r3, #12]\n pop {r3-r11, pc}\n");
}
#elif NN_DSP && !defined(NN_DSP_IN_C)
#define NN_ROW_STEP(from, sum) \
    "ldr r10, [" from "\n sxtb16 r3, r10\n sxtb16 r10, r10, ror #8\n" \
    "smlad " sum ", r3, r11, " sum "\n smlad " sum ", r10, r12, " sum "\n"

NN_NAKED void nn_add_rows(NN_ARGUMENT const int8_t *weights, NN_ARGUMENT int32_t length, NN_ARGUMENT const int8_t *in,
                          NN_ARGUMENT int32_t sums[5]) {
    __asm__("push {r3-r11, lr}\n ldm r3, {r4-r8}\n add r9, r0, r1, lsl #1\n"
            "1:\n ldr r12, [r2], #4\n sxtb16 r11, r12\n sxtb16 r12, r12, ror #8\n"
            NN_ROW_STEP("r0, r1]", "r5") NN_ROW_STEP("r0], #4", "r4")
            NN_ROW_STEP("r9, r1]", "r7") NN_ROW_STEP("r9], #4", "r6")
            "subs r8, r8, #1\n bne 1b\n"
            "ldr r3, [sp]\n stm r3, {r4-r7}\n pop {r3-r11, pc}\n");
}
#else
NN_INLINE void nn_add_rows(const int8_t *weights, int32_t length, const int8_t *in, int32_t sums[5]) {
    int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3];
    const int8_t *p = weights, *q = p + length, *r = q + length, *s = r + length;
    for (int32_t n = sums[4]; n > 0; n--, in += 4, p += 4, q += 4, r += 4, s += 4) {
#if NN_DSP
        uint32_t four = nn_four(in), even = nn_even(four), odd = nn_odd(four);
        a = nn_two(nn_odd(nn_four(p)), odd, nn_two(nn_even(nn_four(p)), even, a));
        b = nn_two(nn_odd(nn_four(q)), odd, nn_two(nn_even(nn_four(q)), even, b));
        c = nn_two(nn_odd(nn_four(r)), odd, nn_two(nn_even(nn_four(r)), even, c));
        d = nn_two(nn_odd(nn_four(s)), odd, nn_two(nn_even(nn_four(s)), even, d));
#else
        a += p[0] * in[0], b += q[0] * in[0], c += r[0] * in[0], d += s[0] * in[0];
        a += p[1] * in[1], b += q[1] * in[1], c += r[1] * in[1], d += s[1] * in[1];
        a += p[2] * in[2], b += q[2] * in[2], c += r[2] * in[2], d += s[2] * in[2];
        a += p[3] * in[3], b += q[3] * in[3], c += r[3] * in[3], d += s[3] * in[3];
#endif
    }
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
}
#endif
