/* SHA-256 (FIPS 180-4), and the proof that a side knows the token (HMAC, RFC 2104). */
#ifndef NNPIPE_SHA256_H
#define NNPIPE_SHA256_H

#include <stdint.h>

struct nnpipe_sha256 {
    uint32_t state[8];
    uint64_t count; /* bytes so far */
    uint8_t block[64];
};

void nnpipe_sha256_begin(struct nnpipe_sha256 *hash);
void nnpipe_sha256_add(struct nnpipe_sha256 *hash, const void *data, uint64_t count);
void nnpipe_sha256_end(struct nnpipe_sha256 *hash, uint8_t digest[32]);

/* HMAC-SHA256, keyed by the token, of the role with its final zero and of the payloads of HELLO and its OK. */
void nnpipe_prove(const uint8_t *token, uint32_t bytes, const char *role, const uint8_t said[64], uint8_t proof[32]);

#endif
