/* A target for nnpipe's wire protocol whose models are linked in: a host that offers one of them by its SHA-256 is told
 * that the target has it already.  It runs on a Cortex-M without an operating system, with the first UART of Arm's MPS2
 * boards as the line, and counts instructions as QEMU does; or on Linux, with TCP as the line, and tells the time.
 *
 * There is one host at a time, without a token.  HELLO begins anew, whatever was said before. */
#include <stdint.h>

#include "nnpipe_protocol.h"

struct model {
    uint8_t sha256[32];
    uint64_t size; /* of the file that a host offers */
    void *(*input)(int32_t);
    const void *(*output)(int32_t);
    void (*run)(void);
    uint32_t input_bytes, output_bytes;
};
extern const struct model models[];
extern const uint32_t model_count;

enum { MODEL_BEGIN = 0, MODEL_END = 2, STARTED = 1, FATAL = 0x80, LARGEST = 1 << 20, PART = 4096 };

/* The line, and the counter: each kind of target has its own. */
static int read_bytes(uint8_t *to, uint32_t count); /* returns 0 when the host has gone */
static void write_bytes(const uint8_t *from, uint32_t count);
static uint64_t counter(void);
static const uint8_t COUNTER_KIND;
static const uint64_t COUNTER_RATE;

static uint32_t crc32(uint32_t crc, const uint8_t *data, uint32_t count) {
    crc = ~crc;
    while (count--) {
        crc ^= *data++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

static void put32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> 8 * i);
}

static void put64(uint8_t *to, uint64_t value) {
    put32(to, (uint32_t)value);
    put32(to + 4, (uint32_t)(value >> 32));
}

static uint32_t get32(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void send_frame(uint8_t kind, uint8_t flags, uint32_t number, const uint8_t *payload, uint32_t length) {
    uint8_t head[24] = {0x6e, 1, kind, flags};
    put32(head + 4, number);
    put32(head + 8, length);
    put32(head + 12, length ? crc32(0, payload, length) : 0);
    put32(head + 20, crc32(0, head, 20));
    write_bytes(head, sizeof head);
    if (length) write_bytes(payload, length);
}

static void send_error(uint8_t flags, uint32_t number, uint16_t code, const char *text) {
    static uint8_t payload[128];
    uint32_t length = 4;
    payload[0] = (uint8_t)code;
    payload[1] = (uint8_t)(code >> 8);
    while (*text && length < sizeof payload) payload[length++] = (uint8_t)*text++;
    send_frame(NNPIPE_ERROR, flags, number, payload, length);
}

/* Read a header, past whatever is none. */
static int read_header(uint8_t head[24]) {
    if (!read_bytes(head, 24)) return 0;
    while (head[0] != 0x6e || crc32(0, head, 20) != get32(head + 20)) {
        for (int i = 0; i < 23; i++) head[i] = head[i + 1];
        if (!read_bytes(head + 23, 1)) return 0;
    }
    return 1;
}

static const struct model *offered, *loaded;

static const struct model *find(const uint8_t *sha256) {
    for (uint32_t m = 0; m < model_count; m++) {
        int same = 1;
        for (int i = 0; i < 32; i++) same &= models[m].sha256[i] == sha256[i];
        if (same) return &models[m];
    }
    return 0;
}

static void answer(const uint8_t head[24], const uint8_t *payload) {
    uint8_t reply[56] = {0};
    uint8_t kind = head[2], flags = head[3];
    uint32_t number = get32(head + 4), length = get32(head + 8);
    uint64_t received = counter();
    switch (kind) {
    case NNPIPE_HELLO:
        offered = loaded = 0;
        reply[0] = 1, reply[1] = 1; /* version, and CRC-32; no proof, no extensions */
        put32(reply + 8, LARGEST);
        put32(reply + 12, PART);
        send_frame(NNPIPE_OK, 0, number, reply, 32);
        return;
    case NNPIPE_MODEL:
        if (flags == MODEL_BEGIN && length >= 40) {
            loaded = 0;
            offered = find(payload + 8);
            if (!offered) {
                send_error(0, number, NNPIPE_CODE_MODEL, "this model is not linked in");
                return;
            }
            put64(reply, offered->size); /* so the host sends nothing of it */
            send_frame(NNPIPE_OK, 0, number, reply, 8);
            return;
        }
        if (flags == MODEL_END && offered) {
            loaded = offered;
            send_frame(NNPIPE_OK, 0, number, reply, 8);
            return;
        }
        break;
    case NNPIPE_DATA:
        if (!loaded) break;
        if (length != loaded->input_bytes) {
            send_error(0, number, NNPIPE_CODE_TENSORS, "other tensors are expected");
            return;
        }
        send_frame(NNPIPE_OK, 0, number, 0, 0); /* they were read into their place */
        return;
    case NNPIPE_PROCESS:
        if (!loaded) break;
        send_frame(NNPIPE_OK, STARTED, number, 0, 0);
        put64(reply, received);
        put64(reply + 8, counter());
        loaded->run();
        put64(reply + 16, counter());
        put64(reply + 24, counter());
        send_frame(NNPIPE_OK, 0, number, reply, 32);
        return;
    case NNPIPE_OUTPUT:
        if (!loaded) break;
        send_frame(NNPIPE_OK, 0, number, loaded->output(0), loaded->output_bytes);
        return;
    case NNPIPE_STATS:
        reply[0] = COUNTER_KIND;
        put32(reply + 4, 40); /* bytes of a row, of which there are none */
        put64(reply + 8, COUNTER_RATE);
        put64(reply + 16, received);
        put64(reply + 24, counter());
        send_frame(NNPIPE_OK, 0, number, reply, 48);
        return;
    }
    send_error(FATAL, number, NNPIPE_CODE_PROTOCOL, "that is not expected now");
}

/* Serve a host until it has gone. */
static void serve(void) {
    static uint8_t buffer[4096];
    uint8_t head[24];
    while (read_header(head)) {
        uint32_t length = get32(head + 8), left = length, crc = 0;
        /* Tensors are read into their place; of a model's description, only the beginning is kept. */
        int tensors = head[2] == NNPIPE_DATA && loaded && length == loaded->input_bytes;
        if (tensors) {
            if (!read_bytes(loaded->input(0), length)) return;
            crc = crc32(0, loaded->input(0), length);
            left = 0;
        }
        for (int first = 1; left; first = 0) {
            uint8_t *to = first ? buffer : buffer + 64;
            uint32_t room = first ? 64 : sizeof buffer - 64, part = left < room ? left : room;
            if (!read_bytes(to, part)) return;
            crc = crc32(crc, to, part);
            left -= part;
        }
        if (crc != get32(head + 12)) send_error(FATAL, get32(head + 4), NNPIPE_CODE_PROTOCOL, "a damaged payload came");
        else answer(head, buffer);
    }
}

#ifdef __linux__

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int host;
static const uint8_t COUNTER_KIND = 0; /* time */
static const uint64_t COUNTER_RATE = 1000000000;

static int read_bytes(uint8_t *to, uint32_t count) {
    while (count) {
        ssize_t got = read(host, to, count);
        if (got <= 0) return 0;
        to += got;
        count -= (uint32_t)got;
    }
    return 1;
}

static void write_bytes(const uint8_t *from, uint32_t count) {
    while (count) {
        ssize_t put = send(host, from, count, MSG_NOSIGNAL);
        if (put <= 0) return;
        from += put;
        count -= (uint32_t)put;
    }
}

static uint64_t counter(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int count, char **words) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[count - 1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8)) return 1;
    while ((host = accept(listener, 0, 0)) >= 0) {
        setsockopt(host, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        serve();
        close(host);
    }
    return 1;
}

#else

#include "start_up.h"

static volatile uint32_t *const uart = (volatile uint32_t *)0x40004000; /* data, state, control, interrupts, divider */
static volatile uint32_t *const enable_interrupt = (volatile uint32_t *)0xE000E100;
static volatile uint32_t *const disable_interrupt = (volatile uint32_t *)0xE000E180;

enum { TICK = 40 }; /* instructions in a tick of 25 MHz, where QEMU takes a nanosecond for each */
static const uint8_t COUNTER_KIND = 2; /* instructions */
static const uint64_t COUNTER_RATE = 0;

static void byte_came(void) {
    *disable_interrupt = 1; /* it is only there to wake the processor */
    uart[3] = 2;
}

static void fault(void) {
    for (;;) {}
}

static int read_bytes(uint8_t *to, uint32_t count) {
    while (count--) {
        while (!(uart[1] & 2)) {
            __asm__ volatile("cpsid i" ::: "memory"); /* what comes from here on is pending, and ends the wait */
            *enable_interrupt = 1;
            if (!(uart[1] & 2)) __asm__ volatile("wfi");
            __asm__ volatile("cpsie i\n isb" ::: "memory");
        }
        *to++ = (uint8_t)uart[0];
    }
    return 1;
}

static void write_bytes(const uint8_t *from, uint32_t count) {
    while (count--) {
        while (uart[1] & 1) {}
        uart[0] = *from++;
    }
}

static uint64_t counter(void) { return ticks() * TICK; }

static void reset(void) {
    start_up();
    uart[4] = 16;
    uart[2] = 1 | 2 | 8; /* send, receive, and interrupt when a byte has come */
    for (;;) serve();
}

__attribute__((section(".vectors"), used)) const void *const vectors[17] = {
    &_estack, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, tick, byte_came,
};

#endif
