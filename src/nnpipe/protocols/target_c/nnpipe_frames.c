#include "nnpipe_frames.h"

uint32_t nnpipe_crc32(uint32_t crc, const void *data, uint32_t count) {
    /* Four bits at a time: a table of 64 bytes, where eight would take 1 KiB. */
    static const uint32_t table[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    const uint8_t *at = data;
    crc = ~crc;
    while (count--) {
        crc ^= *at++;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

uint32_t nnpipe_get32(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint64_t nnpipe_get64(const uint8_t *at) { return nnpipe_get32(at) | (uint64_t)nnpipe_get32(at + 4) << 32; }

void nnpipe_put32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

void nnpipe_put64(uint8_t *at, uint64_t value) {
    nnpipe_put32(at, (uint32_t)value);
    nnpipe_put32(at + 4, (uint32_t)(value >> 32));
}

void nnpipe_pack_header(uint8_t to[24], uint8_t kind, uint8_t flags, uint32_t number, uint32_t length, uint32_t check) {
    to[0] = NNPIPE_MAGIC, to[1] = NNPIPE_VERSION, to[2] = kind, to[3] = flags;
    nnpipe_put32(to + 4, number);
    nnpipe_put32(to + 8, length);
    nnpipe_put32(to + 12, check);
    nnpipe_put32(to + 16, 0);
    nnpipe_put32(to + 20, nnpipe_crc32(0, to, 20));
}

void nnpipe_receive(struct nnpipe_receiver *receiver) {
    receiver->wrong = 0;
    receiver->place = 0;
    receiver->room = receiver->left = receiver->check = receiver->have = 0;
}

int nnpipe_between_frames(const struct nnpipe_receiver *receiver) { return !receiver->have; }

uint32_t nnpipe_wanted(struct nnpipe_receiver *receiver, uint8_t **to) {
    uint32_t most;
    if (receiver->have < NNPIPE_HEADER_BYTES) {
        *to = receiver->bytes + receiver->have;
        return NNPIPE_HEADER_BYTES - receiver->have;
    }
    if (!receiver->room) receiver->place = 0;
    most = receiver->place ? receiver->room : (uint32_t)sizeof receiver->bytes;
    *to = receiver->place ? receiver->place : receiver->bytes;
    return most < receiver->left ? most : receiver->left;
}

static enum nnpipe_event broken(struct nnpipe_receiver *receiver, const char *wrong) {
    receiver->wrong = wrong;
    return NNPIPE_BROKEN;
}

/* Nothing in the header is believed before its own check has passed. */
static enum nnpipe_event headed(struct nnpipe_receiver *receiver) {
    const uint8_t *bytes = receiver->bytes;
    struct nnpipe_header *header = &receiver->header;
    header->header_check = nnpipe_get32(bytes + 20);
    if (header->header_check != nnpipe_crc32(0, bytes, 20) || bytes[0] != NNPIPE_MAGIC)
        return broken(receiver, "something came that is not a frame of nnpipe, or a frame's header was damaged");
    if (bytes[1] != NNPIPE_VERSION) return broken(receiver, "a frame of another version came");
    header->magic = bytes[0], header->version = bytes[1], header->kind = bytes[2], header->flags = bytes[3];
    header->number = nnpipe_get32(bytes + 4);
    header->length = receiver->left = nnpipe_get32(bytes + 8);
    header->check_low = nnpipe_get32(bytes + 12);
    header->check_high = nnpipe_get32(bytes + 16);
    receiver->place = 0;
    receiver->room = receiver->check = 0;
    return NNPIPE_HEADED;
}

enum nnpipe_event nnpipe_took(struct nnpipe_receiver *receiver, uint32_t count) {
    if (receiver->have < NNPIPE_HEADER_BYTES) {
        receiver->have += count;
        return receiver->have < NNPIPE_HEADER_BYTES ? NNPIPE_MORE : headed(receiver);
    }
    if (count) {
        receiver->check = nnpipe_crc32(receiver->check, receiver->place ? receiver->place : receiver->bytes, count);
        receiver->left -= count;
        if (receiver->place) {
            receiver->place += count;
            receiver->room -= count;
        }
    }
    if (receiver->left) {
        return receiver->place && !receiver->room ? NNPIPE_FULL : NNPIPE_MORE;
    }
    if (receiver->header.check_low != receiver->check || receiver->header.check_high)
        return broken(receiver, "the payload of a frame was damaged on its way");
    receiver->have = 0;
    return NNPIPE_FRAME;
}
