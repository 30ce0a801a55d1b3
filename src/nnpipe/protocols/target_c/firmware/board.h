/* What firmware asks of a board.  A new board needs a file with these functions, a linker script, and -DBOARD_CORE=4 (or
 * 3, 7, 55) and -DBOARD_NAME='"my board"'. */
#ifndef NNPIPE_BOARD_H
#define NNPIPE_BOARD_H

#include <stdint.h>

/* Start the clock, the UART and the counter. */
void board_start(void);

/* Send what was kept, wait for a byte from the UART, and return it. */
uint8_t board_read(void);

/* Send a byte by the UART, at once or with the next board_flush. */
void board_write(uint8_t byte);

/* Send what was kept. */
void board_flush(void);

/* What has been counted since the board started. */
uint64_t board_count(void);

/* The interrupt of SysTick, which may do nothing. */
void board_tick(void);

/* How often an interrupt has come during a run, or before; while none comes, the stack is measured to the byte. */
uint32_t board_interrupts(void);

/* What is counted: 0 time, 1 cycles, 2 instructions; how many of them are a second, or 0. */
extern const uint8_t board_counter;
extern const uint64_t board_rate;

#endif
