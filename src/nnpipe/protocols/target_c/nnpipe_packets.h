/* Packets on a serial line: finds them in the bytes that come, and writes them, without I/O and without a buffer for
 * packets.  The content of a packet is handed on while it comes, before its CRC is known, since frames have their own
 * checks; but the last byte of it only when the packet is whole, so that nothing is on its way when a request is acted
 * upon.  A UART without a buffer loses no byte then.
 *
 *     for (;;) switch (nnpipe_packet_byte(&line, read_byte(), &content)) { ... }
 */
#ifndef NNPIPE_PACKETS_H
#define NNPIPE_PACKETS_H

#include <stdint.h>

enum nnpipe_packet_event {
    NNPIPE_PACKET_NOTHING, /* go on */
    NNPIPE_PACKET_CONTENT, /* a byte of the session's frames came */
    NNPIPE_PACKET_OPENED,  /* a host has opened a new session, and was answered: whatever was before is forgotten */
    NNPIPE_PACKET_OVER     /* the session has ended: the host closed it, or a packet is missing */
};

struct nnpipe_packets {
    void (*write)(uint8_t byte);
    /* What comes: the byte stuffing, the last 4 bytes, which may be the CRC, and what is known of the packet. */
    uint32_t last, crc, count; /* count: unstuffed bytes in this packet, the CRC included */
    uint8_t code, left, bad, held;
    uint8_t head[4];
    uint8_t open, session, fresh; /* fresh: nothing of this session has come yet */
    uint16_t taken;               /* packets of this session */
    /* What is sent: bytes without a zero that wait for the next zero. */
    uint8_t block[254], waiting, sending;
    uint16_t sent;
    uint32_t sent_crc, sent_bytes;
};

/* Begin on a line that is silent. */
void nnpipe_packets_begin(struct nnpipe_packets *line, void (*write)(uint8_t byte));

/* A byte came. */
enum nnpipe_packet_event nnpipe_packet_byte(struct nnpipe_packets *line, uint8_t byte, uint8_t *content);

/* Send bytes of frames; packets are sent when they are full, and by nnpipe_packets_flush. */
void nnpipe_packets_send(struct nnpipe_packets *line, const uint8_t *bytes, uint32_t count);

/* Send what has not been sent yet. */
void nnpipe_packets_flush(struct nnpipe_packets *line);

/* End the session. */
void nnpipe_packets_close(struct nnpipe_packets *line);

#endif
