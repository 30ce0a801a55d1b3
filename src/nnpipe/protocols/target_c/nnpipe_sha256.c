#include "nnpipe_sha256.h"

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t value, int by) { return value >> by | value << (32 - by); }

static void add_block(struct nnpipe_sha256 *hash) {
    uint32_t words[64], v[8];
    for (int n = 0; n < 16; n++) {
        const uint8_t *at = hash->block + 4 * n;
        words[n] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    for (int n = 16; n < 64; n++) {
        uint32_t a = words[n - 15], b = words[n - 2];
        words[n] = words[n - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + words[n - 7] +
                   (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    for (int n = 0; n < 8; n++) v[n] = hash->state[n];
    for (int n = 0; n < 64; n++) {
        uint32_t one = v[7] + (turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25)) +
                       ((v[4] & v[5]) ^ (~v[4] & v[6])) + constants[n] + words[n];
        uint32_t two = (turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22)) +
                       ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        for (int m = 7; m; m--) v[m] = v[m - 1];
        v[4] += one;
        v[0] = one + two;
    }
    for (int n = 0; n < 8; n++) hash->state[n] += v[n];
}

void nnpipe_sha256_begin(struct nnpipe_sha256 *hash) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    for (int n = 0; n < 8; n++) hash->state[n] = first[n];
    hash->count = 0;
}

void nnpipe_sha256_add(struct nnpipe_sha256 *hash, const void *data, uint64_t count) {
    const uint8_t *at = data;
    while (count--) {
        hash->block[hash->count++ % 64] = *at++;
        if (hash->count % 64 == 0) add_block(hash);
    }
}

void nnpipe_sha256_end(struct nnpipe_sha256 *hash, uint8_t digest[32]) {
    static const uint8_t mark[64] = {0x80};
    uint64_t bits = hash->count * 8;
    uint8_t length[8];
    nnpipe_sha256_add(hash, mark, 1 + (119 - hash->count % 64) % 64);
    for (int n = 0; n < 8; n++) length[n] = (uint8_t)(bits >> (56 - 8 * n));
    nnpipe_sha256_add(hash, length, 8);
    for (int n = 0; n < 32; n++) digest[n] = (uint8_t)(hash->state[n / 4] >> (24 - 8 * (n % 4)));
}

void nnpipe_prove(const uint8_t *token, uint32_t bytes, const char *role, const uint8_t said[64], uint8_t proof[32]) {
    uint8_t key[64] = {0}, shortened[32];
    struct nnpipe_sha256 hash;
    uint32_t length = 0;
    if (bytes > sizeof key) {
        nnpipe_sha256_begin(&hash);
        nnpipe_sha256_add(&hash, token, bytes);
        nnpipe_sha256_end(&hash, shortened);
        token = shortened, bytes = sizeof shortened;
    }
    for (uint32_t n = 0; n < bytes; n++) key[n] = token[n];
    while (role[length++]) {} /* its final zero counts, too */
    for (int n = 0; n < 64; n++) key[n] ^= 0x36;
    nnpipe_sha256_begin(&hash);
    nnpipe_sha256_add(&hash, key, sizeof key);
    nnpipe_sha256_add(&hash, role, length);
    nnpipe_sha256_add(&hash, said, 64);
    nnpipe_sha256_end(&hash, proof);
    for (int n = 0; n < 64; n++) key[n] ^= 0x36 ^ 0x5c;
    nnpipe_sha256_begin(&hash);
    nnpipe_sha256_add(&hash, key, sizeof key);
    nnpipe_sha256_add(&hash, proof, 32);
    nnpipe_sha256_end(&hash, proof);
}
