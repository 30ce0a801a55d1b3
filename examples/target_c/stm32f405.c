/* What nnpipe's firmware asks of a board (board.h), for an STM32F405 at 16 MHz with a host at USART1: PA9 sends, PA10
 * receives.  The cycle counter of the core is the counter. */
#include "board.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define RCC_AHB1ENR REGISTER(0x40023830)
#define RCC_APB2ENR REGISTER(0x40023844)
#define GPIOA_MODER REGISTER(0x40020000)
#define GPIOA_AFRH REGISTER(0x40020024)
#define USART1_SR REGISTER(0x40011000)
#define USART1_DR REGISTER(0x40011004)
#define USART1_BRR REGISTER(0x40011008)
#define USART1_CR1 REGISTER(0x4001100C)
#define DEMCR REGISTER(0xE000EDFC)
#define DWT_CTRL REGISTER(0xE0001000)
#define DWT_CYCCNT REGISTER(0xE0001004)

enum { RXNE = 1 << 5, TXE = 1 << 7, CLOCK = 16000000, BAUD_RATE = 115200 };

const uint8_t board_counter = 1; /* cycles */
const uint64_t board_rate = CLOCK;

void board_start(void) {
    RCC_AHB1ENR |= 1;
    RCC_APB2ENR |= 1 << 4;
    GPIOA_MODER = (GPIOA_MODER & ~(0xFu << 18)) | 0xAu << 18; /* PA9 and PA10 belong to a peripheral: */
    GPIOA_AFRH = (GPIOA_AFRH & ~(0xFFu << 4)) | 0x77u << 4;   /* USART1 */
    USART1_BRR = CLOCK / BAUD_RATE;
    USART1_CR1 = 1 << 13 | 1 << 3 | 1 << 2;
    DEMCR |= 1u << 24;
    DWT_CYCCNT = 0;
    DWT_CTRL |= 1;
}

uint8_t board_read(void) {
    while (!(USART1_SR & RXNE)) {}
    return (uint8_t)USART1_DR;
}

void board_write(uint8_t byte) {
    while (!(USART1_SR & TXE)) {}
    USART1_DR = byte;
}

void board_flush(void) {}

uint64_t board_count(void) {
    static uint64_t whole; /* the counter has 32 bits: it is read at least at each request */
    whole += (uint32_t)(DWT_CYCCNT - (uint32_t)whole);
    return whole;
}

void board_tick(void) {}
uint32_t board_interrupts(void) { return 0; }
