/* A target that answers conversations from a file: for each, 4 bytes of length, 1 byte that is not 0 if a token is wanted,
 * 1 byte for the size of pieces, and what the host says.  For each it writes 4 bytes of length and what it answers.
 *
 * The model has inputs of 5 and 16 bytes, and outputs of 3 and 4: the first bytes of its inputs, each plus 1.  It fails
 * where its second input begins with 255.  Models of up to 200 bytes are taken; no byte of the file may be 0xEE. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnpipe_sha256.h"
#include "nnpipe_target.h"

static uint8_t file[200], arena[21 + 7], kept[24], *said;
static uint32_t said_bytes;
static uint64_t offered, had;
static struct nnpipe_target target;
static const struct nnpipe_tensor inputs[] = {{arena, 5}, {arena + 5, 16}}, outputs[] = {{arena + 21, 3}, {arena + 24, 4}};
static struct nnpipe_model model = {inputs, outputs, 2, 2, kept, 0, "{\"io\":{},\"about\":{}}"};

static void write_bytes(void *context, const uint8_t *bytes, uint32_t count) {
    (void)context;
    said = realloc(said, said_bytes + count);
    memcpy(said + said_bytes, bytes, count);
    said_bytes += count;
}

static uint64_t count(void *context) { return (void)context, 1000; }

static uint16_t offer(void *context, uint64_t size, const uint8_t sha256[32], uint64_t *have) {
    (void)context, (void)sha256;
    if (size > sizeof file) return NNPIPE_CODE_NO_SPACE;
    offered = size, had = *have = 0;
    return 0;
}

static uint8_t *place(void *context, uint64_t offset, uint32_t bytes) {
    (void)context;
    return offset == had && bytes <= offered - had ? file + offset : 0;
}

static uint16_t take(void *context, uint64_t offset, uint32_t bytes) {
    (void)context;
    if (offset != had) return NNPIPE_CODE_MODEL;
    for (uint32_t n = 0; n < bytes; n++)
        if (file[offset + n] == 0xEE) return NNPIPE_CODE_NO_SPACE;
    had += bytes;
    return 0;
}

static uint16_t load(void *context, uint64_t *counts, const struct nnpipe_model **loaded) {
    (void)context;
    if (had != offered) return NNPIPE_CODE_MODEL;
    *counts = 77;
    *loaded = &model;
    return 0;
}

static uint16_t run(void *context, uint64_t stamps[2]) {
    (void)context, (void)stamps;
    if (arena[5] == 255) return NNPIPE_CODE_RUNTIME;
    for (int n = 0; n < 3; n++) arena[21 + n] = (uint8_t)(arena[n] + 1);
    for (int n = 0; n < 4; n++) arena[24 + n] = (uint8_t)(arena[5 + n] + 1);
    memset(arena, 0, 21);
    return 0;
}

#define OWNER                                                                                                        \
    .largest = 512, .part = 64, .extensions = 7, .rate = 1000000000, .write = write_bytes, .count = count, .offer = offer, \
    .place = place, .take = take, .load = load, .run = run
static const struct nnpipe_owner with_token = {
    OWNER, .token = (const uint8_t *)"a token that both sides know", .token_bytes = 28, .prove = nnpipe_prove,
}, without_token = {OWNER};

int main(int words, char **word) {
    uint8_t head[6], nonce[16];
    if (words > 1 && !strcmp(word[1], "uses-up")) model.kept = 0;
    for (int n = 0; n < 16; n++) nonce[n] = (uint8_t)(16 + n);
    while (fread(head, 1, sizeof head, stdin) == sizeof head) {
        uint32_t length = nnpipe_get32(head), at = 0;
        uint8_t *heard = malloc(length ? length : 1); /* of exactly its size, so that a byte beyond is noticed */
        int goes_on = 1;
        if (fread(heard, 1, length, stdin) != length) return 2;
        said_bytes = 0;
        offered = had = 0;
        memset(arena, 0, sizeof arena);
        nnpipe_begin(&target, head[4] ? &with_token : &without_token, 0, nonce);
        while (at < length && goes_on) {
            uint8_t *to;
            uint32_t most = nnpipe_target_wanted(&target, &to), piece = 1 + (at * 7 + head[5]) % (head[5] + 1u);
            if (!most) return 3;
            if (most > piece) most = piece;
            if (most > length - at) most = length - at;
            memcpy(to, heard + at, most);
            at += most;
            goes_on = nnpipe_heard(&target, most);
        }
        free(heard);
        nnpipe_put32(head, said_bytes);
        fwrite(head, 1, 4, stdout);
        fwrite(said, 1, said_bytes, stdout);
    }
    free(said);
    return 0;
}
