/* A server of nnpipe's protocol for Linux: one process lets clients in and watches; each client is served by a process of
 * its own, so that a model that crashes takes nothing else along, and nothing of a client is left for the next. */
#ifndef NNPIPE_SERVER_H
#define NNPIPE_SERVER_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "nnpipe_target.h"

enum { GUESTS = 32, ROWS = 1024, TOKEN_ROOM = 4096, OUT_ROOM = 256, PART = 1 << 16, SLOWEST = 500 };

struct options {
    const char *host;
    uint16_t port;
    double greeting_timeout, idle_timeout, run_timeout, load_timeout, timeout; /* seconds */
    int insecure;
    uint8_t token[TOKEN_ROOM];
    uint32_t token_bytes;
};

/* Fill the options from the command line; ends the program where they are wrong. */
void read_options(struct options *options, int count, char **words);

enum guest_state { GONE, GREETING, WAITING, SERVED, LEAVING };

/* A client from the view of the process that lets it in. */
struct guest {
    int socket;
    enum guest_state state;
    int left; /* whether it has closed its end while it was served */
    uint64_t deadline, arrived;
    struct sockaddr_storage address;
    struct nnpipe_target target;
    uint8_t out[OUT_ROOM];
    uint32_t out_bytes;
};

/* What a worker and its supervisor share; each field has one writer. */
struct page {
    _Atomic uint32_t phase, request; /* of the worker: enum nnpipe_phase, or SENDING */
    _Atomic uint32_t since;          /* milliseconds */
    _Atomic uint32_t rows_written;   /* of the supervisor: samples of the worker's resources */
    uint8_t rows[ROWS][NNPIPE_ROW_BYTES];
};

enum { SENDING = 3 };

uint64_t now(void); /* nanoseconds of a clock that never goes back */
uint32_t milliseconds(void);
void tell(const char *form, ...); /* a line of the log */
void close_listener(void);
const char *address_text(const struct sockaddr_storage *address);

extern struct options options;
extern struct page *page;

/* -- guests.c: the handshake with several clients at a time -- */
extern struct guest guests[GUESTS];
void let_in(int listener);
uint64_t pause_of_listening(void); /* nanoseconds for which nobody can be let in */
void attend(struct guest *guest);
void send_away(struct guest *guest, uint16_t code, const char *text); /* code 0: without a word */
void hear_out(struct guest *guest);                                    /* drop what one who leaves still says */
void look_at_clocks(void);
uint64_t next_deadline(void);

/* -- throttle.c: how long the next proof from an address must wait -- */
uint64_t throttle_wait(const struct sockaddr_storage *address);
void throttle_failed(const struct sockaddr_storage *address);

/* -- supervisor.c: the process that serves a client -- */
struct guest *served(void); /* the client that is served, or 0 */
void start_worker(struct guest *guest);
void look_at_worker(void);
void stop_worker(uint16_t code, const char *text);

/* -- worker.c: serve a client to the end, in a process of its own -- */
int serve(struct guest *guest);

#endif
