/* Sums of 3 x 3 neighbours times weights, for one output or two beside each other. */
#if NN_DSP
/* Of three rows of weights: the first and third number of each, and the second ones. */
typedef struct { uint32_t s0, s1, s2, m0, m1, m2; } nn_taps;

NN_INLINE nn_taps nn_taps_of(const int8_t *weights) {
    nn_taps t;
    t.s0 = nn_even(nn_four(weights)), t.s1 = nn_even(nn_four(weights + 3)), t.s2 = nn_even(nn_four(weights + 6));
    t.m0 = (uint32_t)weights[1], t.m1 = (uint32_t)weights[4], t.m2 = (uint32_t)weights[7];
    return t;
}

NN_INLINE int32_t nn_three(const int8_t *p, uint32_t sides, uint32_t middle, int32_t sum) {
    uint32_t four = nn_four(p);
    return nn_low_low(nn_odd(four), middle, nn_two(nn_even(four), sides, sum));
}

NN_INLINE int32_t nn_nine(const int8_t *p, int32_t width, const nn_taps *t, int32_t sum) {
    sum = nn_three(p + width, t->s1, t->m1, nn_three(p, t->s0, t->m0, sum));
    return nn_three(p + 2 * width, t->s2, t->m2, sum);
}

NN_INLINE void nn_three_twice(const int8_t *p, uint32_t sides, uint32_t middle, int32_t *a, int32_t *b) {
    uint32_t even = nn_even(nn_four(p)), odd = nn_odd(nn_four(p));
    *a = nn_low_low(odd, middle, nn_two(even, sides, *a)), *b = nn_high_low(even, middle, nn_two(odd, sides, *b));
}

NN_INLINE void nn_nine_twice(const int8_t *p, int32_t width, const nn_taps *t, int32_t *a, int32_t *b) {
    nn_three_twice(p, t->s0, t->m0, a, b), nn_three_twice(p + width, t->s1, t->m1, a, b);
    nn_three_twice(p + 2 * width, t->s2, t->m2, a, b);
}
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
