/* What the line over UDP (udp.h) asks of an Ethernet controller.  Frames have neither preamble nor CRC, and lie at
 * addresses of whole words, with room for whole words at their end. */
#ifndef NNPIPE_ETHERNET_H
#define NNPIPE_ETHERNET_H

#include <stdint.h>

enum { ETHERNET_LARGEST = 1514, ETHERNET_WORDS = (ETHERNET_LARGEST + 4 + 3) / 4 };

/* Start it with an address of its own. */
void ethernet_start(const uint8_t address[6]);

/* Copy the next frame that has come, and return its bytes, or 0 if there is none; what is longer is dropped. */
uint32_t ethernet_receive(uint32_t frame[ETHERNET_WORDS]);

/* Send a frame of 60 to ETHERNET_LARGEST bytes. */
void ethernet_send(const uint32_t *frame, uint32_t bytes);

/* Let an interrupt wake the processor when a frame comes; and end that. */
void ethernet_listen(void);
void ethernet_heard(void);

#endif
