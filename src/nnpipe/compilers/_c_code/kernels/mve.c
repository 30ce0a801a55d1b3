/* Vectors of 16 bytes, where the core has the vector extension (Helium).  With NN_MVE_IN_C, the code that uses them is
 * computed in C. */
#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__) && !defined(__ARM_BIG_ENDIAN)
#include <arm_mve.h>
#define NN_MVE 1
#elif defined(NN_MVE_IN_C)
#define NN_MVE 1
#else
#define NN_MVE 0
#endif

#if NN_MVE && !defined(NN_MVE_IN_C)
/* From the high products of sums and multipliers to int8, with as many lanes as the predicate says: nn_requantise of
 * four sums.  Shifts to the right are negative, and round halves away from zero. */
NN_INLINE int32x4_t nn_rounded_four(int32x4_t x, int32x4_t shift, const nn_zeros *z) {
    x = vaddq_s32(x, vshrq_n_s32(vandq_s32(x, shift), 31));
    x = vaddq_n_s32(vrshlq_s32(x, shift), z->out_zero);
    return vminq_s32(vmaxq_s32(x, vdupq_n_s32(z->low)), vdupq_n_s32(z->high));
}
#endif
