/* Starts a Cortex-M in QEMU, runs a model on samples that are linked in, and tells by semihosting how many bytes of the
 * outputs are wrong, the least and greatest number of SysTick's ticks that a run took, and the bytes of stack that it
 * needed. */
#include "start_up.h"

extern const uint8_t sample_inputs[], sample_outputs[];
extern const int32_t input_bytes, output_bytes, samples;

void *nn_input(int32_t number);
const void *nn_output(int32_t number);
void nn_run(void);

static void call(uint32_t operation, const void *argument) {
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

static void tell(const char *text) { call(4, text); }

static void tell_number(uint64_t number) {
    char text[24];
    int at = 23;
    text[at] = 0;
    do text[--at] = (char)('0' + number % 10); while (number /= 10);
    tell(text + at);
    tell(" ");
}

static void end(void) {
    call(0x18, (const void *)0x20026);
    for (;;) {}
}

static void fault(void) {
    tell("fault");
    end();
}

#define STACK_WORDS 16384
#define PATTERN 0xA5C3965Au

static uint32_t *stack_pointer(void) __attribute__((always_inline));
static inline uint32_t *stack_pointer(void) {
    uint32_t *found;
    __asm__ volatile("mov %0, sp" : "=r"(found));
    return found;
}

static void reset(void) {
    uint64_t least = UINT64_MAX, most = 0, wrong = 0;
    uint32_t *stack;
    start_up();
    for (volatile int i = 0; i < 100; i++) {} /* what is read before the first reload means nothing */
    stack = stack_pointer();
    for (volatile uint32_t *at = stack - STACK_WORDS; at < stack; at++) *at = PATTERN;
    for (int32_t s = 0; s < samples; s++) {
        uint8_t *in = nn_input(0);
        const uint8_t *out = nn_output(0);
        for (int32_t i = 0; i < input_bytes; i++) in[i] = sample_inputs[s * input_bytes + i];
        uint64_t took = ticks();
        __asm__ volatile("cpsid i" ::: "memory"); /* an interrupt would write to the stack; it is taken afterwards */
        nn_run();
        __asm__ volatile("cpsie i\n isb" ::: "memory");
        took = ticks() - took;
        if (took < least) least = took;
        if (took > most) most = took;
        for (int32_t i = 0; i < output_bytes; i++) wrong += out[i] != sample_outputs[s * output_bytes + i];
    }
    tell_number(wrong);
    tell_number(least);
    tell_number(most);
    uint32_t *lowest = stack - STACK_WORDS;
    while (lowest < stack && *lowest == PATTERN) lowest++;
    tell_number((uint64_t)(stack - lowest) * 4);
    end();
}

__attribute__((section(".vectors"), used)) const void *const vectors[16] = {
    &_estack, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, tick,
};
