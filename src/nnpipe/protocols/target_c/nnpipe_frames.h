/* Frames of nnpipe's wire protocol: reads and writes them without I/O, without memory of its own, and without a library.
 *
 * A receiver is told how many bytes have come, and says where the next ones belong:
 *
 *     nnpipe_receive(&receiver);
 *     for (;;) {
 *         uint8_t *to;
 *         uint32_t most = nnpipe_wanted(&receiver, &to);
 *         switch (nnpipe_took(&receiver, most ? read(to, most) : 0)) { ... }
 *     }
 *
 * It never asks for bytes beyond the present frame. */
#ifndef NNPIPE_FRAMES_H
#define NNPIPE_FRAMES_H

#include "nnpipe_protocol.h"

enum nnpipe_event {
    NNPIPE_MORE,   /* the frame is incomplete */
    NNPIPE_HEADED, /* its header is right: the owner checks kind and length, and may set `place` and `room` */
    NNPIPE_FULL,   /* `room` is used up, and more of the payload comes: the owner may set them anew */
    NNPIPE_FRAME,  /* the payload is right, too; the next bytes belong to the next frame */
    NNPIPE_BROKEN  /* `wrong` tells why; the conversation is over */
};

struct nnpipe_receiver {
    struct nnpipe_header header; /* of the present frame; valid from NNPIPE_HEADED on */
    const char *wrong;
    uint8_t *place; /* where the payload goes; 0 drops it, though its check is computed */
    uint32_t room;  /* bytes that fit there */
    uint32_t left;  /* bytes of the payload that have not come yet */
    uint32_t check; /* of the payload so far */
    uint32_t have;  /* bytes of the header; 24 while a payload is awaited */
    uint8_t bytes[64];
};

/* CRC-32 as in zlib; begin with 0, and go on with what came out. */
uint32_t nnpipe_crc32(uint32_t crc, const void *data, uint32_t count);

/* Numbers in payloads, at any address and for any byte order of the processor. */
uint32_t nnpipe_get32(const uint8_t *at);
uint64_t nnpipe_get64(const uint8_t *at);
void nnpipe_put32(uint8_t *at, uint32_t value);
void nnpipe_put64(uint8_t *at, uint64_t value);

/* Write the header of a frame; `check` is the CRC-32 of the payload. */
void nnpipe_pack_header(uint8_t to[24], uint8_t kind, uint8_t flags, uint32_t number, uint32_t length, uint32_t check);

/* Begin with a new conversation. */
void nnpipe_receive(struct nnpipe_receiver *receiver);

/* Whether no byte of a next frame has come. */
int nnpipe_between_frames(const struct nnpipe_receiver *receiver);

/* Where the next bytes go, and how many at most; 0 after the header of a frame without payload. */
uint32_t nnpipe_wanted(struct nnpipe_receiver *receiver, uint8_t **to);

/* Say that so many bytes have been written there. */
enum nnpipe_event nnpipe_took(struct nnpipe_receiver *receiver, uint32_t count);

#endif
