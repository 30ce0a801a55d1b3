/* Start of a Cortex-M without an operating system: memory as the program expects it, and the ticks of SysTick. */
#include <stdint.h>

extern uint32_t _estack, _sidata, _sdata, _edata, _sbss, _ebss; /* of sections.ld */

static volatile uint32_t *const systick = (volatile uint32_t *)0xE000E010; /* control, reload, value */
static volatile uint32_t wraps;

static void tick(void) { wraps++; }

static void start_up(void) {
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* the floating-point unit */
    __asm__ volatile("dsb\n isb");
    for (uint32_t *to = &_sdata, *from = &_sidata; to < &_edata;) *to++ = *from++;
    for (uint32_t *to = &_sbss; to < &_ebss;) *to++ = 0;
    systick[1] = 0xFFFFFF;
    systick[2] = 0;
    systick[0] = 7;
}

static uint64_t ticks(void) {
    uint32_t turns, value;
    do {
        turns = wraps;
        value = systick[2];
    } while (turns != wraps);
    return (uint64_t)turns * 0x1000000u + (0xFFFFFFu - value);
}
