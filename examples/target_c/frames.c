/* Reads frames of nnpipe's wire protocol as a target in C99 does: fixed memory, no malloc.
 *
 *     cd examples/target_c && core=../../src/nnpipe/protocols/target_c
 *     cc -std=c99 -I $core -o frames frames.c $core/nnpipe_frames.c
 *     ./frames ../../tests/data/conversations/inference.txt
 *
 * prints each frame of a golden conversation and fails (status 1) at the first byte that is wrong.  With -s the
 * file holds packets of a serial line. */
#include <stdio.h>
#include <string.h>

#include "nnpipe_frames.h"

enum { LARGEST = 16384, PACKET = 4096 + 4096 / 254 + 16 };

/* 0, or what is wrong.  Nothing in the header is believed before its check has passed. */
static const char *decode(const uint8_t bytes[24], struct nnpipe_header *header)
{
    if (nnpipe_get32(bytes + 20) != nnpipe_crc32(0, bytes, 20) || bytes[0] != 0x6e)
        return "not a frame, or a damaged header";
    if (bytes[1] != 1)
        return "a frame of another version";
    header->magic = bytes[0], header->version = bytes[1], header->kind = bytes[2], header->flags = bytes[3];
    header->number = nnpipe_get32(bytes + 4), header->length = nnpipe_get32(bytes + 8);
    header->check_low = nnpipe_get32(bytes + 12), header->check_high = nnpipe_get32(bytes + 16);
    header->header_check = nnpipe_get32(bytes + 20);
    if (header->kind < NNPIPE_OK || header->kind > NNPIPE_INFER)
        return "an unknown kind";
    return header->length > LARGEST ? "more bytes than there is room for" : 0;
}

/* One direction of a conversation: takes bytes one by one, as a UART gives them. */
struct line {
    uint8_t bytes[24 + LARGEST];
    uint32_t have;
    struct nnpipe_header header;
    uint8_t packet[PACKET]; /* on a serial line only */
    uint32_t in_packet;
};

static int greeted;
static uint8_t check = 1; /* the bit that the OK to HELLO chose; payloads under others than crc32 are passed over */

static const char *frame_ends(char who, struct line *line)
{
    static const char *const names[] = {"", "OK", "ERROR", "DATA", "MODEL", "PROCESS",
                                        "OUTPUT", "STATS", "HELLO", "AUTH", "LOG", "INFER"};
    const struct nnpipe_header *header = &line->header;
    const uint8_t *payload = line->bytes + 24;
    uint8_t again[24];

    nnpipe_pack_header(again, header->kind, header->flags, header->number, header->length, header->check_low);
    nnpipe_put32(again + 16, header->check_high);
    nnpipe_put32(again + 20, nnpipe_crc32(0, again, 20));
    if (memcmp(again, line->bytes, 24))
        return "a header that would be written otherwise";
    if (check == 1 || !header->length)
        if (header->check_low != nnpipe_crc32(0, payload, header->length) || header->check_high)
            return "a damaged payload";
    printf("%c %s %u %u %u\n", who, names[header->kind], (unsigned)header->flags, (unsigned)header->number,
           (unsigned)header->length);
    if (who == '<' && header->kind == NNPIPE_OK && !greeted) /* the very first answer is that to HELLO */
        greeted = 1, check = payload[1];
    line->have = 0;
    return 0;
}

static const char *take(char who, struct line *line, uint8_t byte)
{
    const char *wrong = 0;
    line->bytes[line->have++] = byte;
    if (line->have == 24)
        wrong = decode(line->bytes, &line->header);
    if (!wrong && line->have >= 24 && line->have == 24 + line->header.length)
        wrong = frame_ends(who, line);
    return wrong;
}

/* Undo the byte stuffing in place; what fails the CRC is dropped, as noise. */
static const char *take_packet(char who, struct line *line, uint8_t byte)
{
    uint32_t from = 0, to = 0, count = line->in_packet;
    uint8_t *at = line->packet;
    const char *wrong = 0;
    if (byte) { /* a packet too long is noise: it is counted no further, and dropped at the next zero */
        if (line->in_packet < PACKET)
            line->packet[line->in_packet++] = byte;
        return 0;
    }
    line->in_packet = 0;
    while (from < count) {
        uint8_t code = at[from++];
        if (from + code - 1 > count)
            return 0;
        for (uint8_t i = 1; i < code; i++)
            at[to++] = at[from++];
        if (code < 255 && from < count)
            at[to++] = 0;
    }
    if (to < 8 || count == PACKET || nnpipe_get32(at + to - 4) != nnpipe_crc32(0, at, to - 4))
        return 0;
    printf("%c packet %u %u\n", who, (unsigned)at[0], (unsigned)(to - 8));
    for (uint32_t i = 4; at[0] == 3 && i < to - 4 && !wrong; i++)
        wrong = take(who, line, at[i]);
    return wrong;
}

int main(int count, char **words)
{
    static struct line asked, said;
    int serial = count > 2 && !strcmp(words[1], "-s"), c, high = -1;
    FILE *file = count > 1 ? fopen(words[count - 1], "r") : 0;
    const char *wrong = file ? 0 : "no such file";
    char who = 0;
    while (!wrong && (c = getc(file)) != EOF) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, c);
        struct line *line = who == '>' ? &asked : &said;
        if (c == '#')
            while ((c = getc(file)) != EOF && c != '\n')
                ;
        else if (c == '>' || c == '<')
            who = (char)c;
        else if (digit && c && high < 0)
            high = (int)(digit - digits);
        else if (digit && c) {
            uint8_t byte = (uint8_t)(high * 16 + (digit - digits));
            high = -1;
            wrong = serial ? take_packet(who, line, byte) : take(who, line, byte);
        }
    }
    if (!wrong && (asked.have || said.have))
        wrong = "a frame that is not whole";
    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    return wrong ? 1 : 0;
}
