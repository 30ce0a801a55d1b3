/* After two wrong proofs from an address, its further ones wait up to two seconds, until a minute has passed without one.
 * An address is one of IPv4, or a /64 network of IPv6: what one user controls. */
#include <string.h>

#include "server.h"

enum { REMEMBERED = 64, FREE = 2 };
#define SECOND UINT64_C(1000000000)

static struct {
    uint8_t key[8];
    uint32_t count;
    uint64_t last;
} failures[REMEMBERED];

static void key_of(const struct sockaddr_storage *address, uint8_t key[8]) {
    memset(key, 0, 8);
    if (address->ss_family == AF_INET6) {
        const uint8_t *bytes = ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr;
        static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255};
        if (memcmp(bytes, mapped, sizeof mapped)) memcpy(key, bytes, 8);
        else memcpy(key, bytes + 12, 4);
    } else {
        memcpy(key, &((const struct sockaddr_in *)address)->sin_addr, 4);
    }
}

uint64_t throttle_wait(const struct sockaddr_storage *address) {
    uint8_t key[8];
    key_of(address, key);
    for (int n = 0; n < REMEMBERED; n++) {
        uint64_t since = now() - failures[n].last, most = SECOND / 4;
        if (!failures[n].count || memcmp(failures[n].key, key, 8)) continue;
        if (failures[n].count <= FREE || since > 60 * SECOND) return 0;
        for (uint32_t more = failures[n].count - FREE - 1; more && most < 2 * SECOND; more--) most *= 2;
        return since < most ? most - since : 0;
    }
    return 0;
}

void throttle_failed(const struct sockaddr_storage *address) {
    uint8_t key[8];
    int at = 0;
    key_of(address, key);
    for (int n = 0; n < REMEMBERED; n++) {
        if (failures[n].count && !memcmp(failures[n].key, key, 8)) {
            at = n;
            break;
        }
        if (failures[n].last < failures[at].last) at = n;
    }
    if (memcmp(failures[at].key, key, 8) || now() - failures[at].last > 60 * SECOND) failures[at].count = 0;
    memcpy(failures[at].key, key, 8);
    failures[at].count++;
    failures[at].last = now();
}
