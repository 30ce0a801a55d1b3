#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "models.h"
#include "server.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors go over the wire as they lie in memory, so the processor must be little-endian"
#endif

#define SECOND UINT64_C(1000000000)
enum { IN_ROOM = 1 << 14, BUFFER = 1 << 15, QUICK = 1000000 };

static int line;
static uint8_t out[BUFFER];
static uint32_t out_bytes;
static uint64_t last_run = QUICK + 1, loaded_in;
static uint32_t rows_read;
static const struct nnpipe_linked_model *offered, *loaded;
static struct nnpipe_model model;
static struct nnpipe_target *conversation;

/* -- the line ----------------------------------------------------------------------------------- */

/* Send all, or end: a client that takes nothing for a while, or a few bytes a second, is given up. */
static void send_all(const uint8_t *bytes, uint32_t count) {
    const uint64_t patience = (uint64_t)(options.timeout * 1e9);
    uint64_t due = now() + patience, silent = due;
    uint32_t before = page->phase;
    page->phase = SENDING;
    while (count) {
        struct pollfd wait = {.fd = line, .events = POLLOUT};
        ssize_t sent = send(line, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            bytes += sent, count -= (uint32_t)sent;
            due += (uint64_t)sent * (SECOND / SLOWEST), silent = now() + patience;
            continue;
        }
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) _exit(0);
        if (now() > due || now() > silent) _exit(0);
        poll(&wait, 1, 50);
    }
    page->phase = before;
}

static void flush(void) {
    if (out_bytes) send_all(out, out_bytes);
    out_bytes = 0;
}

static void write_out(void *context, const uint8_t *bytes, uint32_t count) {
    (void)context;
    if (count > BUFFER - out_bytes) flush();
    if (count > BUFFER) {
        send_all(bytes, count);
        return;
    }
    memcpy(out + out_bytes, bytes, count);
    out_bytes += count;
}

/* -- what requests ask for ---------------------------------------------------------------------- */

static uint64_t count(void *context) { return (void)context, now(); }

static uint16_t offer(void *context, uint64_t size, const uint8_t sha256[32], uint64_t *had) {
    (void)context;
    loaded = 0;
    for (uint32_t m = 0; m < nnpipe_model_count; m++) {
        offered = &nnpipe_models[m];
        if (offered->size != size || memcmp(offered->sha256, sha256, 32)) continue;
        *had = size; /* so the host sends nothing of it */
        return 0;
    }
    conversation->why = "it is not linked with this server, which takes no others; --models lists those it has";
    return NNPIPE_CODE_MODEL;
}

/* What the host is told about the model and this machine, in memory that the process never frees. */
static const char *about(const struct nnpipe_linked_model *found) {
    static const char form[] = "{\"io\":%s,\"about\":{\"host\":{\"system\":{\"name\":\"%.60s\",\"release\":\"%.60s\",\"machine\":\"%.60s\"},"
                               "\"memory_bytes\":%llu},\"frameworks\":{},\"runtime\":{\"class\":\"CRuntime\",\"arguments\":{}}}}";
    static char *text;
    struct utsname name;
    size_t room = sizeof form + strlen(found->io) + 256;
    free(text);
    text = malloc(room);
    if (!text || uname(&name)) return 0;
    snprintf(text, room, form, found->io, name.sysname, name.release, name.machine,
             (unsigned long long)sysconf(_SC_PHYS_PAGES) * (unsigned long long)sysconf(_SC_PAGESIZE));
    return text;
}

static uint16_t load(void *context, uint64_t *counts, const struct nnpipe_model **found) {
    uint64_t begun = now();
    uint32_t tensors = offered->input_count + offered->output_count;
    (void)context;
    memset(*offered->arena, 0, *offered->arena_bytes); /* whatever ran before in this conversation */
    for (uint32_t n = 0; n < tensors; n++) {
        int32_t number = (int32_t)(n < offered->input_count ? n : n - offered->input_count);
        nnpipe_places[n].place = n < offered->input_count ? offered->input(number) : (uint8_t *)(uintptr_t)offered->output(number);
        nnpipe_places[n].bytes = offered->sizes[n];
    }
    model.inputs = nnpipe_places, model.outputs = nnpipe_places + offered->input_count;
    model.input_count = offered->input_count, model.output_count = offered->output_count;
    model.kept = nnpipe_kept_inputs;
    model.reset = offered->reset;
    model.about = about(offered);
    loaded = offered;
    *counts = loaded_in = now() - begun;
    *found = &model;
    nnpipe_log(conversation, 20, "the model is loaded");
    return 0;
}

static uint16_t run(void *context, uint64_t stamps[2]) {
    (void)context;
    stamps[0] = now();
    loaded->run();
    stamps[1] = now();
    last_run = stamps[1] - stamps[0];
    return 0;
}

static uint32_t rows(void *context, const uint8_t **found) {
    static uint8_t copy[ROWS * NNPIPE_ROW_BYTES];
    uint32_t written = page->rows_written, bytes = 0;
    (void)context;
    if (written - rows_read > ROWS - 8) rows_read = written - (ROWS - 8); /* the oldest could be overwritten meanwhile */
    for (; rows_read < written; rows_read++, bytes += NNPIPE_ROW_BYTES)
        memcpy(copy + bytes, page->rows[rows_read % ROWS], NNPIPE_ROW_BYTES);
    *found = copy;
    return bytes;
}

static void phase(void *context, int what, uint32_t request) {
    (void)context;
    /* If the model is fast, or the host has sent ahead, both OKs to PROCESS go together: no host waits for the first. */
    if (what == NNPIPE_RUNNING && last_run > QUICK) flush();
    page->request = request;
    if (what != NNPIPE_WAITING) page->since = milliseconds();
    page->phase = (uint32_t)what;
}

/* -- the conversation --------------------------------------------------------------------------- */

static void over(uint16_t code, const char *text) {
    char bytes[4096];
    uint64_t until = now() + SECOND;
    if (code) nnpipe_refuse(conversation, code, text);
    flush();
    shutdown(line, SHUT_WR);
    while (now() < until) { /* what was sent last arrives only if all is read */
        struct pollfd wait = {.fd = line, .events = POLLIN};
        if (poll(&wait, 1, 100) > 0 && recv(line, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) return;
    }
}

/* Wait for bytes; gives how many came, 0 when the client has left, or -1 when it was too slow. */
static ssize_t receive(uint8_t *to, uint32_t room, uint64_t *due) {
    const int between = nnpipe_between_frames(&conversation->in);
    char text[64];
    uint64_t time = now(), until;
    if (between) *due = 0;
    else if (!*due) *due = time + (uint64_t)(options.timeout * 1e9);
    until = between ? time + (uint64_t)(options.idle_timeout * 1e9) : time + (uint64_t)(options.timeout * 1e9);
    if (!between && *due < until) until = *due;
    for (; time < until; time = now()) {
        struct pollfd wait = {.fd = line, .events = POLLIN};
        ssize_t came;
        poll(&wait, 1, (int)((until - time) / 1000000 % 60000 + 1));
        came = recv(line, to, room, MSG_DONTWAIT);
        if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
        if (came > 0 && !between) *due += (uint64_t)came * (SECOND / SLOWEST);
        return came < 0 ? 0 : came;
    }
    snprintf(text, sizeof text, "no request came for %g s", options.idle_timeout);
    over(NNPIPE_CODE_TIMEOUT, between ? text : "the rest of a frame did not come");
    return -1;
}

int serve(struct guest *guest) {
    static uint8_t in[IN_ROOM];
    struct nnpipe_owner owner = *guest->target.owner;
    uint64_t due = 0;
    line = guest->socket;
    conversation = &guest->target;
    owner.write = write_out, owner.count = count, owner.offer = offer, owner.load = load, owner.run = run;
    owner.rows = rows, owner.phase = phase;
    conversation->owner = &owner;
    for (;;) {
        uint8_t *to;
        uint32_t most = nnpipe_target_wanted(conversation, &to);
        int direct = most >= IN_ROOM; /* tensors go to their place without a copy */
        ssize_t came = receive(direct ? to : in, direct ? most : IN_ROOM, &due);
        int goes_on = 1;
        if (came <= 0) return 0;
        if (direct) goes_on = nnpipe_heard(conversation, (uint32_t)came);
        for (uint32_t at = 0; !direct && goes_on && at < (uint32_t)came;) {
            most = nnpipe_target_wanted(conversation, &to);
            if (most > (uint32_t)came - at) most = (uint32_t)came - at;
            memcpy(to, in + at, most);
            at += most;
            goes_on = nnpipe_heard(conversation, most);
        }
        flush();
        if (!goes_on) {
            over(0, 0);
            return 0;
        }
    }
}
