/* Arm's MPS2 and MPS3 boards, as QEMU emulates them: the first UART, UDP, and SysTick as a counter of
 * instructions, since QEMU takes a nanosecond for each (-icount shift=0).  On a board, SysTick would count cycles. */
#include "board.h"
#include "ethernet.h"
#include "udp.h"

static volatile uint32_t *const systick = (volatile uint32_t *)0xE000E010; /* control, reload, value */
/* Data, state, control, interrupts, divider. */
static volatile uint32_t *const uart = (volatile uint32_t *)BOARD_UART;
static volatile uint32_t *const enable_interrupt = (volatile uint32_t *)0xE000E100;
static volatile uint32_t *const disable_interrupt = (volatile uint32_t *)0xE000E180;
static volatile uint32_t wraps;
static uint8_t by_lan; /* whether the host is at the network, not at the UART */

enum { FULL = 1, CAME = 2 };
const uint8_t board_counter = 2;
const uint64_t board_rate = 0;

static void allow(uint32_t interrupt) { enable_interrupt[interrupt / 32] = 1u << interrupt % 32; }
static void forbid(uint32_t interrupt) { disable_interrupt[interrupt / 32] = 1u << interrupt % 32; }

void board_tick(void) { wraps++; }

/* It is only there to wake the processor. */
void byte_came(void) {
    forbid(BOARD_UART_INTERRUPT);
    forbid(BOARD_LAN_INTERRUPT);
    uart[3] = CAME;
    ethernet_heard();
}

static int came(void) { return uart[1] & CAME || udp_came(); }

uint8_t board_read(void) {
    board_flush();
    while (!came()) {
        __asm__ volatile("cpsid i" ::: "memory"); /* what comes from here on is pending, and ends the wait */
        ethernet_listen();
        allow(BOARD_UART_INTERRUPT);
        allow(BOARD_LAN_INTERRUPT);
        if (!came()) __asm__ volatile("wfi");
        __asm__ volatile("cpsie i\n isb" ::: "memory");
    }
    by_lan = !(uart[1] & CAME);
    return by_lan ? udp_read() : (uint8_t)uart[0];
}

void board_write(uint8_t byte) {
    if (by_lan) udp_write(byte);
    else {
        while (uart[1] & FULL) {}
        uart[0] = byte;
    }
}

void board_flush(void) { udp_flush(); }

/* A tick takes 1000 / BOARD_MEGAHERTZ instructions: 40 or 31.25.  Without a division, this needs no stack of its own. */
uint64_t board_count(void) {
    uint32_t turns, value;
    do {
        turns = wraps;
        value = systick[2];
    } while (turns != wraps);
    return ((uint64_t)turns << 24 | (0xFFFFFFu - value)) * (4000 / BOARD_MEGAHERTZ) >> 2;
}

uint32_t board_interrupts(void) { return wraps; }

void board_start(void) {
    systick[1] = 0xFFFFFF;
    systick[2] = 0;
    systick[0] = 7;
    for (volatile int i = 0; i < 100; i++) {} /* what is read before the first reload means nothing */
    uart[4] = 16;
    uart[2] = 1 | 2 | 8; /* send, receive, and interrupt when a byte has come */
    udp_start(BOARD_ADDRESS, BOARD_PORT);
}
