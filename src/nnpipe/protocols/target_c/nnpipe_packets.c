#include "nnpipe_packets.h"

#include "nnpipe_frames.h"

enum { OPEN = 1, OPENED = 2, BYTES = 3, CLOSE = 4, HEAD = 4, CRC = 4, MOST_CONTENT = 4096 };

/* -- what is sent: consistent overhead byte stuffing, a block of up to 254 bytes at a time ---------- */

static void send_block(struct nnpipe_packets *line) {
    line->write((uint8_t)(line->waiting + 1));
    for (uint32_t i = 0; i < line->waiting; i++) line->write(line->block[i]);
    line->waiting = 0;
}

static void stuff(struct nnpipe_packets *line, uint8_t byte) {
    if (byte) line->block[line->waiting++] = byte;
    if (!byte || line->waiting == 254) send_block(line);
}

static void put(struct nnpipe_packets *line, uint8_t byte) {
    line->sent_crc = nnpipe_crc32(line->sent_crc, &byte, 1);
    stuff(line, byte);
}

static void begin_packet(struct nnpipe_packets *line, uint8_t type, uint16_t number) {
    line->write(0);
    line->waiting = 0;
    line->sent_crc = line->sent_bytes = 0;
    put(line, type);
    put(line, line->session);
    put(line, (uint8_t)number);
    put(line, (uint8_t)(number >> 8));
}

static void end_packet(struct nnpipe_packets *line) {
    uint32_t crc = line->sent_crc;
    for (int i = 0; i < CRC; i++) stuff(line, (uint8_t)(crc >> 8 * i));
    send_block(line);
    line->write(0);
}

void nnpipe_packets_flush(struct nnpipe_packets *line) {
    if (line->sending) end_packet(line);
    line->sending = 0;
}

void nnpipe_packets_send(struct nnpipe_packets *line, const uint8_t *bytes, uint32_t count) {
    while (line->open && count--) {
        if (!line->sending) begin_packet(line, BYTES, line->sent++);
        line->sending = 1;
        put(line, *bytes++);
        if (++line->sent_bytes == MOST_CONTENT) nnpipe_packets_flush(line);
    }
}

void nnpipe_packets_close(struct nnpipe_packets *line) {
    if (!line->open) return;
    nnpipe_packets_flush(line);
    begin_packet(line, CLOSE, 0);
    end_packet(line);
    line->open = 0;
}

/* -- what comes ------------------------------------------------------------------------------------ */

static void expect_packet(struct nnpipe_packets *line) {
    line->count = line->crc = 0;
    line->code = line->left = line->bad = 0;
}

void nnpipe_packets_begin(struct nnpipe_packets *line, void (*write)(uint8_t byte)) {
    line->write = write;
    line->open = line->sending = line->waiting = 0;
    expect_packet(line);
}

/* Whether the bytes of this packet belong to the session, and none before them is missing. */
static int is_next(const struct nnpipe_packets *line) {
    return line->open && line->head[0] == BYTES && line->head[1] == line->session &&
           line->head[2] == (uint8_t)line->taken && line->head[3] == (uint8_t)(line->taken >> 8);
}

static enum nnpipe_packet_event over(struct nnpipe_packets *line) {
    nnpipe_packets_close(line);
    return NNPIPE_PACKET_OVER;
}

static enum nnpipe_packet_event packet_ends(struct nnpipe_packets *line, uint8_t *content) {
    const uint8_t type = line->head[0], session = line->head[1];
    int right = line->count >= HEAD + CRC && !line->bad && line->left == 0 && line->crc == line->last;
    int whole = line->count > HEAD + CRC;
    expect_packet(line);
    if (!right) /* noise; but if it was taken for the next packet, what was handed on may be wrong */
        return whole && is_next(line) ? over(line) : NNPIPE_PACKET_NOTHING;
    if (type == OPEN) {
        int again = line->open && line->session == session && line->fresh; /* the first answer was lost */
        line->session = session;
        line->open = line->fresh = 1;
        line->sending = 0;
        line->taken = line->sent = 0;
        begin_packet(line, OPENED, 0);
        end_packet(line);
        return again ? NNPIPE_PACKET_NOTHING : NNPIPE_PACKET_OPENED;
    }
    if (!line->open || session != line->session) return NNPIPE_PACKET_NOTHING;
    if (type == CLOSE) {
        line->open = line->sending = 0;
        return NNPIPE_PACKET_OVER;
    }
    if (type != BYTES) return NNPIPE_PACKET_NOTHING;
    if (!is_next(line)) return over(line);
    line->taken++;
    line->fresh = 0;
    *content = line->held;
    return whole ? NNPIPE_PACKET_CONTENT : NNPIPE_PACKET_NOTHING;
}

enum nnpipe_packet_event nnpipe_packet_byte(struct nnpipe_packets *line, uint8_t byte, uint8_t *content) {
    uint8_t first;
    if (!byte) return packet_ends(line, content);
    if (!line->left) { /* a code: so many bytes follow, then a zero that was removed, unless the block was full */
        uint8_t zero = line->code && line->code != 255;
        line->code = byte;
        line->left = (uint8_t)(byte - 1);
        if (!zero) return NNPIPE_PACKET_NOTHING;
        byte = 0;
    } else line->left--;
    /* Four bytes wait, since they are the CRC if the packet ends now. */
    first = (uint8_t)line->last;
    line->last = line->last >> 8 | (uint32_t)byte << 24;
    if (++line->count <= CRC) return NNPIPE_PACKET_NOTHING;
    line->crc = nnpipe_crc32(line->crc, &first, 1);
    if (line->count <= HEAD + CRC) {
        line->head[line->count - CRC - 1] = first;
        return NNPIPE_PACKET_NOTHING;
    }
    if (line->count > HEAD + CRC + MOST_CONTENT) line->bad = 1;
    if (line->bad || !is_next(line)) return NNPIPE_PACKET_NOTHING;
    *content = line->held;
    line->held = first;
    return line->count > HEAD + CRC + 1 ? NNPIPE_PACKET_CONTENT : NNPIPE_PACKET_NOTHING;
}
