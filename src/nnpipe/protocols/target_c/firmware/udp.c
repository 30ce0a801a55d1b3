#include "udp.h"

#include "ethernet.h"

enum { IP = 14, UDP = 34, HEAD = 42, CONTENT = 52, ARP_END = 42, SMALLEST = 60, PROTOCOL = 17 };
enum { BEGIN = 1, BYTES = 2, AGAIN = 3, AHEAD = 3, PLACES = AHEAD + 1 }; /* there is always a place for the next */

static uint8_t own_mac[6] = {2, 'n'}, own_ip[4], own_port[2];
static uint8_t host_mac[6], host_ip[4], host_port[2];
static uint32_t in[PLACES][ETHERNET_WORDS], out[PLACES][ETHERNET_WORDS], note[SMALLEST / 4];
static uint32_t ends[PLACES], counts[PLACES];    /* where datagrams in `in` end; bytes of the line in those in `out` */
static uint32_t at, filled;                      /* bytes of the first in `in` that were read; of the next in `out` */
static uint16_t line, came, taken, sent, arrived; /* its number; datagrams that came, were read, sent, and taken there */
static uint8_t begun, owed, muted;               /* owed: the host is to be told; muted: it has begun anew since */

static int same(const uint8_t *one, const uint8_t *other, uint32_t count) {
    while (count && *one == *other) one++, other++, count--;
    return !count;
}

static void copy(uint8_t *to, const uint8_t *from, uint32_t count) {
    while (count--) *to++ = *from++;
}

static uint32_t get16(const uint8_t *from) { return (uint32_t)from[0] << 8 | from[1]; }

static void put16(uint8_t *to, uint32_t value) { to[0] = (uint8_t)(value >> 8), to[1] = (uint8_t)value; }

/* The checksum of the internet (RFC 1071); 0 if the bytes include the one that belongs to them. */
static uint32_t check(const uint8_t *bytes, uint32_t count, uint32_t sum) {
    for (; count > 1; bytes += 2, count -= 2) sum += get16(bytes);
    if (count) sum += (uint32_t)*bytes << 8;
    while (sum >> 16) sum = (sum & 0xFFFF) + (sum >> 16);
    return sum ^ 0xFFFF;
}

/* That of a datagram, which covers the addresses before it, too. */
static uint32_t check_udp(const uint8_t *frame, uint32_t bytes) {
    return check(frame + UDP - 8, 8 + bytes, PROTOCOL + bytes);
}

static void send(uint32_t *words, uint8_t kind, uint32_t number, uint32_t count) {
    static const uint8_t fixed[] = {8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, PROTOCOL, 0, 0};
    uint8_t *frame = (uint8_t *)words, *head = frame + HEAD;
    uint32_t bytes = CONTENT + count, sum;
    copy(frame, host_mac, 6), copy(frame + 6, own_mac, 6), copy(frame + 12, fixed, sizeof fixed);
    copy(frame + IP + 12, own_ip, 4), copy(frame + IP + 16, host_ip, 4);
    copy(frame + UDP, own_port, 2), copy(frame + UDP + 2, host_port, 2);
    put16(frame + IP + 2, bytes - IP), put16(frame + UDP + 4, bytes - UDP), put16(frame + UDP + 6, 0);
    put16(frame + IP + 10, check(frame + IP, UDP - IP, 0));
    head[0] = head[1] = 'n', head[2] = 'p', head[3] = kind;
    head[4] = (uint8_t)line, head[5] = (uint8_t)(line >> 8);
    head[6] = (uint8_t)number, head[7] = (uint8_t)(number >> 8);
    head[8] = (uint8_t)taken, head[9] = (uint8_t)(taken >> 8);
    sum = check_udp(frame, bytes - UDP);
    put16(frame + UDP + 6, sum ? sum : 0xFFFF);
    while (bytes < SMALLEST) frame[bytes++] = 0;
    ethernet_send(words, bytes);
    owed = 0;
}

static void send_bytes(uint16_t number) { send(out[number % PLACES], BYTES, number, counts[number % PLACES]); }

/* ARP: who has this address?  The answer is the question with the two sides exchanged. */
static void answer(const uint8_t *frame, uint32_t bytes) {
    static const uint8_t question[] = {8, 6, 0, 1, 8, 0, 6, 4, 0, 1};
    uint8_t *to = (uint8_t *)note;
    if (bytes < ARP_END || !same(frame + 12, question, sizeof question) || !same(frame + 38, own_ip, 4)) return;
    copy(to, frame + 22, 6), copy(to + 6, own_mac, 6), copy(to + 12, question, sizeof question);
    to[21] = 2;
    copy(to + 22, own_mac, 6), copy(to + 28, own_ip, 4), copy(to + 32, frame + 22, 10);
    for (uint32_t n = ARP_END; n < SMALLEST; n++) to[n] = 0;
    ethernet_send(note, SMALLEST);
}

/* Bytes of a datagram for this board with a head of its line, or 0. */
static uint32_t datagram(const uint8_t *frame, uint32_t bytes) {
    static const uint8_t whole[] = {8, 0, 0x45}, magic[] = {'n', 'n', 'p'};
    uint32_t total = get16(frame + IP + 2);
    if (bytes < CONTENT || !same(frame + 12, whole, sizeof whole) || total < CONTENT - IP || total > bytes - IP) return 0;
    if (get16(frame + IP + 6) & 0x3FFF || frame[IP + 9] != PROTOCOL || check(frame + IP, UDP - IP, 0)) return 0;
    if (!same(frame + IP + 16, own_ip, 4) || !same(frame + UDP + 2, own_port, 2)) return 0;
    if (get16(frame + UDP + 4) != total - (UDP - IP)) return 0;
    if (get16(frame + UDP + 6) && check_udp(frame, total - (UDP - IP))) return 0;
    return same(frame + HEAD, magic, sizeof magic) ? total + IP : 0;
}

static void heard(const uint8_t *frame, uint32_t bytes) {
    const uint8_t *head = frame + HEAD;
    int known = begun && same(frame + IP + 12, host_ip, 4) && same(frame + UDP, host_port, 2) &&
                head[4] == (uint8_t)line && head[5] == line >> 8;
    if (head[3] == BEGIN) {
        if (!known) {
            copy(host_mac, frame + 6, 6), copy(host_ip, frame + IP + 12, 4), copy(host_port, frame + UDP, 2);
            line = (uint16_t)(head[4] | head[5] << 8);
            came = taken = sent = arrived = 0;
            at = filled = 0;
            begun = muted = 1;
        }
        send(note, BEGIN, 0, 0);
    } else if (known && (head[3] == BYTES || head[3] == AGAIN)) {
        uint16_t there = (uint16_t)(head[8] | head[9] << 8);
        if ((uint16_t)(there - arrived) <= (uint16_t)(sent - arrived)) arrived = there;
        if (head[3] == AGAIN)
            for (uint16_t number = arrived; number != sent; number++) send_bytes(number);
        else if (bytes == CONTENT) return;
        else if (head[6] == (uint8_t)came && head[7] == came >> 8 && (uint16_t)(came - taken) < AHEAD)
            ends[came++ % PLACES] = bytes;
        else send(note, BYTES, 0, 0);
    }
}

/* Take a frame; return whether there was one. */
static int take(void) {
    uint32_t *words = in[came % PLACES], bytes = ethernet_receive(words), found;
    if (!bytes) return 0;
    found = datagram((const uint8_t *)words, bytes);
    if (found) heard((const uint8_t *)words, found);
    else answer((const uint8_t *)words, bytes);
    return 1;
}

void udp_start(uint32_t address, uint32_t port) {
    for (int i = 0; i < 4; i++) own_ip[i] = own_mac[2 + i] = (uint8_t)(address >> (24 - 8 * i));
    put16(own_port, port);
    ethernet_start(own_mac);
}

int udp_came(void) {
    while (came == taken && take()) {}
    return came != taken;
}

uint8_t udp_read(void) {
    uint32_t place = taken % PLACES;
    uint8_t byte = ((const uint8_t *)in[place])[CONTENT + at++];
    muted = 0;
    if (CONTENT + at == ends[place]) at = 0, taken++, owed = 1;
    return byte;
}

void udp_write(uint8_t byte) {
    while ((uint16_t)(sent - arrived) == AHEAD) take();
    if (muted || !begun) return; /* it is for a host that has gone */
    ((uint8_t *)out[sent % PLACES])[CONTENT + filled++] = byte;
    if (CONTENT + filled == ETHERNET_LARGEST) udp_flush();
}

void udp_flush(void) {
    if (filled) {
        counts[sent % PLACES] = filled, filled = 0;
        send_bytes(sent++);
    } else if (owed) send(note, BYTES, 0, 0);
}
