/* Two products of 16-bit halves at a time, where the core has the DSP extension.  With NN_DSP_IN_C these instructions
 * are computed in C, so that a computer can test the code that uses them. */
#if defined(NN_DSP_IN_C) || (defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN))
#define NN_DSP 1
#else
#define NN_DSP 0
#endif

#if defined(__GNUC__)
#define NN_INLINE static inline __attribute__((always_inline))
#define NN_APART static __attribute__((noinline))
#else
#define NN_INLINE static inline
#define NN_APART static
#endif

/* A function that is written as a whole, and the arguments that it finds in registers. */
#if defined(__clang__)
#define NN_NAKED static __attribute__((naked, noinline, unused))
#elif defined(__GNUC__)
#define NN_NAKED static __attribute__((naked, noinline, noipa, unused))
#endif
#define NN_ARGUMENT __attribute__((unused))

#if NN_DSP
typedef uint32_t __attribute__((may_alias)) nn_word;

NN_INLINE uint32_t nn_four(const int8_t *from) {
    uint32_t found;
    __builtin_memcpy(&found, from, 4);
    return found;
}
#if defined(NN_DSP_IN_C)
NN_INLINE int32_t nn_low(uint32_t x) { return (int16_t)x; }
NN_INLINE int32_t nn_high(uint32_t x) { return (int16_t)(x >> 16); }
NN_INLINE uint32_t nn_even(uint32_t x) { return (uint16_t)(int8_t)x | (uint32_t)(uint16_t)(int8_t)(x >> 16) << 16; }
NN_INLINE uint32_t nn_odd(uint32_t x) { return nn_even(x >> 8); }
NN_INLINE int32_t nn_two(uint32_t a, uint32_t b, int32_t sum) {
    return (int32_t)((uint32_t)sum + (uint32_t)(nn_low(a) * nn_low(b)) + (uint32_t)(nn_high(a) * nn_high(b)));
}
NN_INLINE int32_t nn_low_low(uint32_t a, uint32_t b, int32_t sum) { return sum + nn_low(a) * nn_low(b); }
NN_INLINE int32_t nn_high_low(uint32_t a, uint32_t b, int32_t sum) { return sum + nn_high(a) * nn_low(b); }
NN_INLINE int32_t nn_upper(int32_t a, int32_t b) { return (int32_t)(((int64_t)a * b + 0x80000000LL) >> 32); }
#else
/* Bytes 0 and 2, or 1 and 3, as 16-bit numbers. */
NN_INLINE uint32_t nn_even(uint32_t x) { uint32_t y; __asm__("sxtb16 %0, %1" : "=r"(y) : "r"(x)); return y; }
NN_INLINE uint32_t nn_odd(uint32_t x) { uint32_t y; __asm__("sxtb16 %0, %1, ror #8" : "=r"(y) : "r"(x)); return y; }
/* The sum of both products of halves, or one of them, added to a sum. */
NN_INLINE int32_t nn_two(uint32_t a, uint32_t b, int32_t sum) {
    int32_t y;
    __asm__("smlad %0, %1, %2, %3" : "=r"(y) : "r"(a), "r"(b), "r"(sum));
    return y;
}
NN_INLINE int32_t nn_low_low(uint32_t a, uint32_t b, int32_t sum) {
    int32_t y;
    __asm__("smlabb %0, %1, %2, %3" : "=r"(y) : "r"(a), "r"(b), "r"(sum));
    return y;
}
NN_INLINE int32_t nn_high_low(uint32_t a, uint32_t b, int32_t sum) {
    int32_t y;
    __asm__("smlatb %0, %1, %2, %3" : "=r"(y) : "r"(a), "r"(b), "r"(sum));
    return y;
}
/* The upper half of a product, rounded. */
NN_INLINE int32_t nn_upper(int32_t a, int32_t b) {
    int32_t y;
    __asm__("smmulr %0, %1, %2" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
#endif
#endif

/* A number clamped to int8, whose least and greatest value are given. */
#if defined(__ARM_FEATURE_SAT) && defined(__thumb2__)
NN_INLINE int32_t nn_saturate(int32_t x, int32_t low, int32_t high) {
    int32_t y;
    (void)low, (void)high;
    __asm__("ssat %0, #8, %1" : "=r"(y) : "r"(x));
    return y;
}
#else
NN_INLINE int32_t nn_saturate(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }
#endif
