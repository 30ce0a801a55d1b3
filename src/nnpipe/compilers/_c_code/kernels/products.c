/* Adds the products of two channels' weights and two pixels' columns to four sums.  The last of the five numbers is the
 * length, in fours. */
#if NN_DSP && !NN_MVE && !defined(NN_DSP_IN_C)
#define NN_STEP \
    "ldrd r9, r10, [r2], #16\n ldr r11, [r0], #4\n ldr r12, [r1], #4\n" \
    "sxtb16 r3, r11\n smlad r4, r3, r9, r4\n smlad r6, r3, r10, r6\n" \
    "sxtb16 r3, r12\n smlad r5, r3, r9, r5\n smlad r7, r3, r10, r7\n" \
    "ldrd r9, r10, [r2, #-8]\n sxtb16 r11, r11, ror #8\n sxtb16 r12, r12, ror #8\n" \
    "smlad r4, r11, r9, r4\n smlad r6, r11, r10, r6\n smlad r5, r12, r9, r5\n smlad r7, r12, r10, r7\n"

/* Written as a whole, because a compiler would keep some of these numbers in memory.  Two steps a turn; an odd number
 * begins with the second. */
NN_NAKED void nn_add_products(NN_ARGUMENT const int8_t *p, NN_ARGUMENT const int8_t *q,
                              NN_ARGUMENT const int16_t *columns, NN_ARGUMENT int32_t sums[5]) {
    __asm__("push {r3-r11, lr}\n ldm r3, {r4-r8}\n adds r8, r8, #1\n lsrs r8, r8, #1\n bcc 2f\n"
            "1:\n" NN_STEP "2:\n" NN_STEP "subs r8, r8, #1\n bne 1b\n"
            "ldr r3, [sp]\n stm r3, {r4-r7}\n pop {r3-r11, pc}\n");
}
#else
NN_INLINE void nn_add_products(const int8_t *p, const int8_t *q, const int16_t *columns, int32_t sums[5]) {
    int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3], n = sums[4];
#if NN_DSP
    for (const nn_word *x = (const nn_word *)columns; n > 0; n--, p += 4, q += 4, x += 4) {
        uint32_t s = nn_four(p), t = nn_four(q);
        a = nn_two(nn_odd(s), x[2], nn_two(nn_even(s), x[0], a));
        c = nn_two(nn_odd(s), x[3], nn_two(nn_even(s), x[1], c));
        b = nn_two(nn_odd(t), x[2], nn_two(nn_even(t), x[0], b));
        d = nn_two(nn_odd(t), x[3], nn_two(nn_even(t), x[1], d));
    }
#else
    for (const int16_t *x = columns; n > 0; n--, p += 4, q += 4, x += 8) {
        a += p[0] * x[0], b += q[0] * x[0], c += p[0] * x[2], d += q[0] * x[2];
        a += p[2] * x[1], b += q[2] * x[1], c += p[2] * x[3], d += q[2] * x[3];
        a += p[1] * x[4], b += q[1] * x[4], c += p[1] * x[6], d += q[1] * x[6];
        a += p[3] * x[5], b += q[3] * x[5], c += p[3] * x[7], d += q[3] * x[7];
    }
#endif
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
}
#endif
