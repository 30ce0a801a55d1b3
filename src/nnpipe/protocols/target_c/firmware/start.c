/* Starts a Cortex-M: vectors, memory, floating-point unit; the linker script names the memory.  A board with interrupts
 * of its own states how many there may be, and the function `byte_came` for some of them: -DBOARD_INTERRUPTS=14 and
 * -DBOARD_HANDLERS='[13] = byte_came'. */
#include <stdint.h>

#include "board.h"

#ifndef BOARD_INTERRUPTS
#define BOARD_INTERRUPTS 0
#define BOARD_HANDLERS
#endif

extern uint32_t _estack, _sidata, _sdata, _edata, _sbss, _ebss;

void serve(void);
void give_up(void);
void byte_came(void);

static void reset(void) {
    for (uint32_t *to = &_sdata, *from = &_sidata; to < &_edata;) *to++ = *from++;
    for (uint32_t *to = &_sbss; to < &_ebss;) *to++ = 0;
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* let the floating-point unit be used, where there is one */
    __asm__ volatile("dsb\n isb");
    board_start();
    serve();
}

/* A model did what it must not.  Its stack may be used up, so that what remains is done on a new one. */
__attribute__((naked)) static void fault(void) {
    __asm__ volatile("ldr r0, =_estack\n mov sp, r0\n b after_fault\n .ltorg");
}

/* Say so, and begin anew, so that the host finds a board that answers. */
__attribute__((used)) static void after_fault(void) {
    give_up();
    *(volatile uint32_t *)0xE000ED0C = 0x05FA0004;
    for (;;) {}
}

struct vectors {
    const void *stack;
    void (*core[15])(void);
    void (*board[BOARD_INTERRUPTS])(void);
};

__attribute__((section(".vectors"), used)) const struct vectors vectors = {
    &_estack,
    {reset, fault, fault, fault, fault, fault, [10] = fault, fault, [13] = fault, board_tick},
    {BOARD_HANDLERS}
};
