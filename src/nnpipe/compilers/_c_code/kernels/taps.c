/* Sums of 3 x 3 neighbours times weights, for one output or two beside each other. */
#if NN_DSP
/* Of three rows of weights: the first and third number of each, the second ones of two rows, and of the last row. */
typedef struct { uint32_t s0, s1, s2, m, m2; } nn_taps;

NN_INLINE nn_taps nn_taps_of(const int8_t *weights) {
    nn_taps t;
    t.s0 = nn_even(nn_four(weights)), t.s1 = nn_even(nn_four(weights + 3)), t.s2 = nn_even(nn_four(weights + 6));
    t.m = (uint16_t)weights[1] | (uint32_t)weights[4] << 16, t.m2 = (uint32_t)weights[7];
    return t;
}

NN_INLINE int32_t nn_three(const int8_t *p, uint32_t sides, uint32_t middle, int32_t sum) {
    uint32_t four = nn_four(p);
    return nn_low_low(nn_odd(four), middle, nn_two(nn_even(four), sides, sum));
}

NN_INLINE int32_t nn_nine(const int8_t *p, int32_t width, const nn_taps *t, int32_t sum) {
    sum = nn_three(p + width, t->s1, t->m >> 16, nn_three(p, t->s0, t->m, sum));
    return nn_three(p + 2 * width, t->s2, t->m2, sum);
}

#if defined(NN_DSP_IN_C)
NN_INLINE void nn_three_twice(const int8_t *p, uint32_t sides, uint32_t middle, int32_t *a, int32_t *b) {
    uint32_t even = nn_even(nn_four(p)), odd = nn_odd(nn_four(p));
    *a = nn_low_low(odd, middle, nn_two(even, sides, *a)), *b = nn_high_low(even, middle, nn_two(odd, sides, *b));
}

NN_INLINE void nn_nine_twice(const int8_t *p, int32_t width, const nn_taps *t, int32_t *a, int32_t *b) {
    nn_three_twice(p, t->s0, t->m, a, b), nn_three_twice(p + width, t->s1, t->m >> 16, a, b);
    nn_three_twice(p + 2 * width, t->s2, t->m2, a, b);
}
#else
#define NN_ROW(s, m, half) \
    "sxtb16 %[e], %[o]\n sxtb16 %[o], %[o], ror #8\n smlad %[a], %[e], %[" s "], %[a]\n smlab" half " %[a], %[o], %[" m "], %[a]\n" \
    "smlad %[b], %[o], %[" s "], %[b]\n smlat" half " %[b], %[e], %[" m "], %[b]\n"

NN_INLINE void nn_nine_twice(const int8_t *p, int32_t width, const nn_taps *t, int32_t *first, int32_t *second) {
    int32_t a = *first, b = *second;
    uint32_t e, o;
    __asm__("ldr %[o], [%[p]]\n" NN_ROW("s0", "m", "b") "ldr %[o], [%[p], %[w]]\n" NN_ROW("s1", "m", "t")
            "ldr %[o], [%[p], %[w], lsl #1]\n" NN_ROW("s2", "m2", "b")
            : [a] "+r"(a), [b] "+r"(b), [e] "=&r"(e), [o] "=&r"(o)
            : [p] "r"(p), [w] "r"(width), [s0] "r"(t->s0), [s1] "r"(t->s1), [s2] "r"(t->s2), [m] "r"(t->m),
              [m2] "r"(t->m2)
            : "memory");
    *first = a, *second = b;
}
#endif
#else
typedef struct { const int8_t *weights; } nn_taps;

NN_INLINE nn_taps nn_taps_of(const int8_t *weights) {
    nn_taps t = {weights};
    return t;
}

NN_INLINE int32_t nn_three(const int8_t *p, const int8_t *w, int32_t sum) {
    sum += p[0] * w[0], sum += p[1] * w[1], sum += p[2] * w[2];
    return sum;
}

NN_INLINE int32_t nn_nine(const int8_t *p, int32_t width, const nn_taps *t, int32_t sum) {
    sum = nn_three(p + width, t->weights + 3, nn_three(p, t->weights, sum));
    return nn_three(p + 2 * width, t->weights + 6, sum);
}

NN_INLINE void nn_three_twice(const int8_t *p, const int8_t *w, int32_t *a, int32_t *b) {
    *a += p[0] * w[0], *a += p[1] * w[1], *a += p[2] * w[2];
    *b += p[1] * w[0], *b += p[2] * w[1], *b += p[3] * w[2];
}

NN_INLINE void nn_nine_twice(const int8_t *p, int32_t width, const nn_taps *t, int32_t *a, int32_t *b) {
    nn_three_twice(p, t->weights, a, b), nn_three_twice(p + width, t->weights + 3, a, b);
    nn_three_twice(p + 2 * width, t->weights + 6, a, b);
}
#endif
