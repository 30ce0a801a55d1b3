/* The LAN9118 of Arm's MPS boards. */
#include "ethernet.h"

enum { RX_DATA = 0x00, TX_DATA = 0x20, RX_STATUS = 0x40, TX_STATUS = 0x48, INTERRUPT_CONFIG = 0x54, INTERRUPTS = 0x58,
       INTERRUPTS_ENABLED = 0x5C, FIFO_INTERRUPTS = 0x68, TX_CONFIG = 0x70, RX_INFORMATION = 0x7C, MAC_COMMAND = 0xA4,
       MAC_DATA = 0xA8 };
enum { MAC_CONTROL = 1, MAC_HIGH = 2, MAC_LOW = 3 };
enum { CRC = 4, FRAME_WAITS = 1 << 3, FIRST = 1 << 13, LAST = 1 << 12, RECEIVE = 1 << 2, SEND = 1 << 3 };

static volatile uint32_t *reg(uint32_t offset) { return (volatile uint32_t *)(BOARD_LAN + offset); }

static void set_mac(uint32_t index, uint32_t value) {
    *reg(MAC_DATA) = value;
    *reg(MAC_COMMAND) = 1u << 31 | index;
    while (*reg(MAC_COMMAND) >> 31) {}
}

void ethernet_start(const uint8_t address[6]) {
    set_mac(MAC_LOW, address[0] | address[1] << 8 | address[2] << 16 | (uint32_t)address[3] << 24);
    set_mac(MAC_HIGH, address[4] | address[5] << 8);
    set_mac(MAC_CONTROL, RECEIVE | SEND);
    *reg(TX_CONFIG) = 2;
    *reg(FIFO_INTERRUPTS) = 0; /* interrupt as soon as one frame is there */
    *reg(INTERRUPT_CONFIG) = 1u << 8 | 1u << 4 | 1;
}

uint32_t ethernet_receive(uint32_t frame[ETHERNET_WORDS]) {
    while (*reg(RX_INFORMATION) & 0xFF0000) {
        uint32_t bytes = *reg(RX_STATUS) >> 16 & 0x3FFF;
        for (uint32_t n = 0; n < (bytes + 3) / 4; n++) {
            uint32_t word = *reg(RX_DATA);
            if (n < ETHERNET_WORDS) frame[n] = word;
        }
        if (bytes > CRC && bytes <= ETHERNET_LARGEST + CRC) return bytes - CRC;
    }
    return 0;
}

void ethernet_send(const uint32_t *frame, uint32_t bytes) {
    *reg(TX_DATA) = FIRST | LAST | bytes;
    *reg(TX_DATA) = bytes;
    for (uint32_t n = 0; n < (bytes + 3) / 4; n++) *reg(TX_DATA) = frame[n];
    (void)*reg(TX_STATUS);
}

void ethernet_listen(void) {
    *reg(INTERRUPTS) = FRAME_WAITS;
    *reg(INTERRUPTS_ENABLED) = FRAME_WAITS;
}

void ethernet_heard(void) { *reg(INTERRUPTS_ENABLED) = 0; }
