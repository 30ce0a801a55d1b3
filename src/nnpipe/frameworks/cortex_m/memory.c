/* What GCC may call for loops and copies of structures; left out of files that need none of them. */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *to, const void *from, size_t count) {
    uint8_t *t = to;
    const uint8_t *f = from;
    while (count--) *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, size_t count) {
    uint8_t *t = to;
    const uint8_t *f = from;
    if (t < f) while (count--) *t++ = *f++;
    else while (count--) t[count] = f[count];
    return to;
}

void *memset(void *to, int value, size_t count) {
    uint8_t *t = to;
    while (count--) *t++ = (uint8_t)value;
    return to;
}
