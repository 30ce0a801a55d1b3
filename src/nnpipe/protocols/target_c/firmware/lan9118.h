/* The line to the host over the LAN9118 of Arm's MPS boards: bytes in Ethernet frames of the type for local experiments.
 * The payload begins with two numbers of 16 bits, the higher ones first: how many bytes follow, and the frame's number.
 * A frame that was read is answered by one without bytes and with its number, so that the host never sends more than the
 * controller has room for. */
#ifndef NNPIPE_LAN9118_H
#define NNPIPE_LAN9118_H

#include <stdint.h>

void lan_start(void);

/* Whether a byte is here; and the next one. */
int lan_came(void);
uint8_t lan_read(void);

/* Let an interrupt wake the processor when a frame comes; and end that. */
void lan_listen(void);
void lan_heard(void);

/* Send a byte, or keep it for the frame that lan_flush sends. */
void lan_write(uint8_t byte);
void lan_flush(void);

#endif
