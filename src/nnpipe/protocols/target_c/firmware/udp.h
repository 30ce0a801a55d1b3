/* The line to the host over UDP (RFC 768) and IPv4, with a fixed address: bytes in datagrams that are numbered, taken in
 * order, and sent again if they are lost.  All this is driven by the host, so that a board needs no clock.
 *
 * A datagram is "nnp", its kind, and three numbers of 16 bits, the lower byte first: the line, the datagram's number, and
 * how many of the other side have been taken; then come the bytes.
 *
 *   BEGIN  The host begins a line, whose number it picks, and repeats that until the board answers with the same.
 *          Whatever was before is forgotten; answers go to where this came from.
 *   BYTES  Bytes of the line.  Without any, it only says what has been taken, and has no number.
 *   AGAIN  The host has waited too long: the board sends again what the host lacks.
 *
 * Either side may be AHEAD datagrams ahead of what the other has taken.  The host sends its own again when it has waited
 * too long.  What is cut, damaged, for another address or port, or not from the host is dropped.  The board answers ARP
 * (RFC 826), and asks for no address itself. */
#ifndef NNPIPE_UDP_H
#define NNPIPE_UDP_H

#include <stdint.h>

void udp_start(uint32_t address, uint32_t port);

/* Whether a byte is here; and the next one. */
int udp_came(void);
uint8_t udp_read(void);

/* Send a byte, or keep it for the datagram that udp_flush sends. */
void udp_write(uint8_t byte);
void udp_flush(void);

#endif
