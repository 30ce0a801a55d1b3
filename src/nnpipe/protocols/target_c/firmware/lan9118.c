#include "lan9118.h"

enum { RX_DATA = 0x00, TX_DATA = 0x20, RX_STATUS = 0x40, TX_STATUS = 0x48, INTERRUPT_CONFIG = 0x54, INTERRUPTS = 0x58,
       INTERRUPTS_ENABLED = 0x5C, FIFO_INTERRUPTS = 0x68, TX_CONFIG = 0x70, RX_INFORMATION = 0x7C, MAC_COMMAND = 0xA4,
       MAC_DATA = 0xA8 };
enum { HEAD = 18, LARGEST = 1500, FRAME_WAITS = 1 << 3, FIRST = 1 << 13, LAST = 1 << 12 };

static const uint8_t own[6] = {2, 0, 0, 0, 0, 2}, host[6] = {2, 0, 0, 0, 0, 1};
static uint32_t in[(LARGEST + HEAD + 8) / 4], out[(LARGEST + HEAD + 8) / 4]; /* words, as the controller has them */
static uint32_t at, end;           /* bytes of `in` that were read, and that are there */
static uint32_t filled = HEAD;     /* bytes of `out` */

static volatile uint32_t *reg(uint32_t offset) { return (volatile uint32_t *)(BOARD_LAN + offset); }

void lan_start(void) {
    *reg(MAC_DATA) = 1u << 2 | 1u << 3 | 1u << 18; /* receive, send, and take frames for any address */
    *reg(MAC_COMMAND) = 1u << 31 | 1;
    *reg(TX_CONFIG) = 2;
    *reg(FIFO_INTERRUPTS) = 0; /* interrupt as soon as one frame is there */
    *reg(INTERRUPT_CONFIG) = 1u << 8 | 1u << 4 | 1;
}

static void send_frame(uint32_t bytes, uint32_t number) {
    uint8_t *head = (uint8_t *)out;
    uint32_t total = HEAD + bytes;
    for (int i = 0; i < 6; i++) head[i] = host[i], head[6 + i] = own[i];
    head[12] = 0x88, head[13] = 0xB5;
    head[14] = (uint8_t)(bytes >> 8), head[15] = (uint8_t)bytes;
    head[16] = (uint8_t)(number >> 8), head[17] = (uint8_t)number;
    if (total < 60) total = 60;
    *reg(TX_DATA) = FIRST | LAST | total;
    *reg(TX_DATA) = total;
    for (uint32_t n = 0; n < (total + 3) / 4; n++) *reg(TX_DATA) = out[n];
    (void)*reg(TX_STATUS);
}

void lan_flush(void) {
    if (filled > HEAD) send_frame(filled - HEAD, 0);
    filled = HEAD;
}

void lan_write(uint8_t byte) {
    ((uint8_t *)out)[filled++] = byte;
    if (filled == LARGEST) lan_flush();
}

int lan_came(void) {
    while (at == end && *reg(RX_INFORMATION) & 0xFF0000) {
        uint32_t bytes = *reg(RX_STATUS) >> 16 & 0x3FFF;
        const uint8_t *head = (const uint8_t *)in;
        for (uint32_t n = 0; n < (bytes + 3) / 4; n++) {
            uint32_t word = *reg(RX_DATA);
            if (n < sizeof in / sizeof *in) in[n] = word;
        }
        if (bytes < HEAD + 4 || bytes > sizeof in || head[12] != 0x88 || head[13] != 0xB5) continue;
        at = HEAD;
        end = HEAD + ((uint32_t)head[14] << 8 | head[15]);
        if (end > bytes - 4) end = at; /* the last 4 are the frame's own CRC */
        lan_flush();
        send_frame(0, (uint32_t)head[16] << 8 | head[17]);
    }
    return at < end;
}

uint8_t lan_read(void) { return ((const uint8_t *)in)[at++]; }

void lan_listen(void) {
    *reg(INTERRUPTS) = FRAME_WAITS;
    *reg(INTERRUPTS_ENABLED) = FRAME_WAITS;
}

void lan_heard(void) { *reg(INTERRUPTS_ENABLED) = 0; }
