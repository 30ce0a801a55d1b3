#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "models.h"
#include "nnpipe_sha256.h"
#include "server.h"

#define SECOND UINT64_C(1000000000)

struct guest guests[GUESTS];

static void forget(struct guest *guest) {
    close(guest->socket);
    guest->state = GONE;
}

static void flush(struct guest *guest) {
    ssize_t sent = 0;
    if (guest->state == GONE || !guest->out_bytes) return;
    sent = send(guest->socket, guest->out, guest->out_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != (ssize_t)guest->out_bytes) forget(guest); /* so little fits, unless the client does not read at all */
    guest->out_bytes = 0;
}

/* Close so that what was sent last arrives: the rest of what the client says is read, or the system would discard both. */
static void leave(struct guest *guest) {
    flush(guest);
    if (guest->state == GONE) return;
    shutdown(guest->socket, SHUT_WR);
    guest->state = LEAVING;
    guest->deadline = now() + SECOND;
}

void send_away(struct guest *guest, uint16_t code, const char *text) {
    if (!code) {
        forget(guest);
        return;
    }
    nnpipe_refuse(&guest->target, code, text);
    leave(guest);
}

void hear_out(struct guest *guest) {
    char bytes[1024];
    for (int n = 0; n < 64; n++) {
        ssize_t count = recv(guest->socket, bytes, sizeof bytes, MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (count <= 0) {
            forget(guest);
            return;
        }
    }
}

/* -- what a conversation asks for until the client is let in ------------------------------------ */

static void write_out(void *context, const uint8_t *bytes, uint32_t count) {
    struct guest *guest = context;
    if (count > OUT_ROOM - guest->out_bytes) return;
    memcpy(guest->out + guest->out_bytes, bytes, count);
    guest->out_bytes += count;
}

static uint64_t count(void *context) { return (void)context, now(); }

static int has_left(const struct guest *guest) {
    struct pollfd look = {.fd = guest->socket, .events = POLLRDHUP};
    return guest->left || poll(&look, 1, 0) > 0;
}

/* Whether another client is served, or waits to be; one that has left does not count. */
static int others(const struct guest *guest) {
    for (int n = 0; n < GUESTS; n++)
        if (&guests[n] != guest && (guests[n].state == WAITING || guests[n].state == SERVED) && !has_left(&guests[n]))
            return 1;
    return 0;
}

static const char *busy_text(void) {
    static char text[64];
    const struct guest *guest = served();
    if (!guest) return "try again later";
    snprintf(text, sizeof text, "for %u s now; try again later", (unsigned)((now() - guest->arrived) / SECOND));
    return text;
}

static uint16_t greet(void *context) {
    struct guest *guest = context;
    if (!others(guest)) return 0;
    guest->target.why = busy_text();
    return NNPIPE_CODE_BUSY;
}

/* The owner of conversations of clients that are not let in yet. */
static const struct nnpipe_owner *doorkeeper(void) {
    static struct nnpipe_owner found = {
        .part = PART, .extensions = 7, .counter = 0, .rate = SECOND, .prove = nnpipe_prove,
        .write = write_out, .count = count, .greet = greet,
    };
    found.largest = nnpipe_largest;
    found.token = options.token_bytes ? options.token : 0;
    found.token_bytes = options.token_bytes;
    return &found;
}

/* -- the handshake ------------------------------------------------------------------------------ */

static uint64_t full_until; /* until then no client is accepted: there is no descriptor for one */

uint64_t pause_of_listening(void) { return now() < full_until ? full_until - now() : 0; }

/* Send the client away that has been here longest without being served; 0 if there is none. */
static struct guest *forget_oldest(void) {
    struct guest *oldest = 0;
    for (int n = 0; n < GUESTS; n++) {
        if (guests[n].state != GREETING && guests[n].state != LEAVING) continue;
        if (!oldest || guests[n].arrived < oldest->arrived) oldest = &guests[n];
    }
    if (oldest) forget(oldest);
    return oldest;
}

static struct guest *free_place(void) {
    for (int n = 0; n < GUESTS; n++)
        if (guests[n].state == GONE) return &guests[n];
    return forget_oldest();
}

void let_in(int listener) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    struct guest *guest;
    uint8_t nonce[16];
    int yes = 1, found = accept(listener, (struct sockaddr *)&address, &size);
    if (found < 0) {
        int left = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED;
        /* Out of descriptors or memory; the client still waits, so that asking at once would only ask again. */
        if (!left && !forget_oldest()) full_until = now() + SECOND / 10;
        return; /* else the client left before it was accepted */
    }
    guest = free_place();
    if (!guest || getrandom(nonce, sizeof nonce, 0) != sizeof nonce) {
        close(found);
        return;
    }
    setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(found, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    guest->socket = found, guest->state = GREETING, guest->left = 0, guest->address = address;
    guest->arrived = now(), guest->deadline = guest->arrived + (uint64_t)(options.greeting_timeout * 1e9);
    guest->out_bytes = 0;
    nnpipe_begin(&guest->target, doorkeeper(), guest, nonce);
}

void attend(struct guest *guest) {
    struct nnpipe_target *target = &guest->target;
    while (guest->state == GREETING) {
        uint8_t *to;
        uint32_t most = nnpipe_target_wanted(target, &to);
        ssize_t came;
        int goes_on;
        if (target->state == NNPIPE_STATE_GREETED && throttle_wait(&guest->address)) return;
        came = recv(guest->socket, to, most, MSG_DONTWAIT);
        if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (came <= 0) {
            forget(guest);
            return;
        }
        goes_on = nnpipe_heard(target, (uint32_t)came);
        if (!goes_on) {
            if (target->in.header.kind == NNPIPE_AUTH && nnpipe_between_frames(&target->in)) throttle_failed(&guest->address);
            tell("%s was not let in: %s", address_text(&guest->address), target->why ? target->why : "its token is wrong");
            leave(guest);
            return;
        }
        flush(guest);
        if (guest->state == GREETING && target->state == NNPIPE_STATE_EMPTY) {
            if (others(guest)) send_away(guest, NNPIPE_CODE_BUSY, busy_text());
            else guest->state = WAITING;
        }
    }
}

void look_at_clocks(void) {
    char text[64];
    uint64_t time = now();
    for (int n = 0; n < GUESTS; n++) {
        struct guest *guest = &guests[n];
        uint64_t wait = guest->state == GREETING && guest->target.state == NNPIPE_STATE_GREETED
                            ? throttle_wait(&guest->address) : 0;
        if (wait && guest->deadline < time + wait + SECOND) guest->deadline = time + wait + SECOND;
        if ((guest->state != GREETING && guest->state != LEAVING) || guest->deadline > time) continue;
        if (guest->state == LEAVING) {
            forget(guest);
            continue;
        }
        snprintf(text, sizeof text, "no greeting came for %g s", options.greeting_timeout);
        tell("%s was not let in: it did not say who it is in time", address_text(&guest->address));
        send_away(guest, NNPIPE_CODE_TIMEOUT, text);
    }
}

uint64_t next_deadline(void) {
    uint64_t found = UINT64_MAX;
    for (int n = 0; n < GUESTS; n++) {
        const struct guest *guest = &guests[n];
        uint64_t due = guest->deadline;
        if (guest->state != GREETING && guest->state != LEAVING) continue;
        if (guest->state == GREETING && guest->target.state == NNPIPE_STATE_GREETED) {
            uint64_t wait = throttle_wait(&guest->address);
            if (wait) due = now() + wait;
        }
        if (due < found) found = due;
    }
    return found;
}
