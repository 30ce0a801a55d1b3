#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "models.h"
#include "server.h"

#define SECOND UINT64_C(1000000000)

struct options options;
static int listener, wake[2];
static volatile sig_atomic_t stopping;

void close_listener(void) {
    close(listener);
    close(wake[0]);
    close(wake[1]);
}

uint32_t milliseconds(void) { return (uint32_t)(now() / 1000000); }

uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

void tell(const char *form, ...) {
    va_list values;
    va_start(values, form);
    vfprintf(stderr, form, values);
    va_end(values);
    fputc('\n', stderr);
}

const char *address_text(const struct sockaddr_storage *address) {
    static char text[INET6_ADDRSTRLEN + 16];
    char host[INET6_ADDRSTRLEN] = "?";
    const int six = address->ss_family == AF_INET6;
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *longer = (const struct sockaddr_in6 *)address;
    inet_ntop(address->ss_family, six ? (const void *)&longer->sin6_addr : (const void *)&four->sin_addr, host, sizeof host);
    snprintf(text, sizeof text, six ? "[%s]:%u" : "%s:%u", host, ntohs(six ? longer->sin6_port : four->sin_port));
    return text;
}

static int is_loopback(const struct sockaddr_storage *address) {
    static const struct in6_addr own = IN6ADDR_LOOPBACK_INIT;
    if (address->ss_family == AF_INET6) return !memcmp(&((const struct sockaddr_in6 *)address)->sin6_addr, &own, sizeof own);
    return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
}

/* Listen at the address, which strangers must not reach unless there is a token. */
static void listen_there(void) {
    struct sockaddr_storage address = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&address;
    const char *host = strcmp(options.host, "localhost") ? options.host : "127.0.0.1";
    socklen_t size = sizeof *four;
    int yes = 1;
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET, four->sin_port = htons(options.port);
    } else if (inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6, six->sin6_port = htons(options.port), size = sizeof *six;
    } else {
        tell("server: not an IP address: %s", host);
        exit(2);
    }
    if (!is_loopback(&address) && !options.token_bytes && !options.insecure) {
        tell("server: other machines can reach %s: name a file that holds a shared token (--token-file), or serve everybody "
             "with --insecure", host);
        exit(2);
    }
    listener = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 64)) {
        tell("server: cannot listen at %s: %s", address_text(&address), strerror(errno));
        exit(2);
    }
}

static void came(int number) {
    int before = errno;
    if (number != SIGCHLD) stopping = 1;
    if (write(wake[1], "", 1) < 0) {} /* it is full: there is something to read already */
    errno = before;
}

static void listen_to_signals(void) {
    struct sigaction action = {.sa_handler = came, .sa_flags = SA_RESTART};
    int numbers[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
    if (pipe(wake) || fcntl(wake[0], F_SETFL, O_NONBLOCK) || fcntl(wake[1], F_SETFL, O_NONBLOCK)) exit(2);
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) sigaction(numbers[n], &action, 0);
    signal(SIGPIPE, SIG_IGN);
}

/* Wait for something to happen, and see to it. */
static void step(void) {
    struct pollfd waits[GUESTS + 2] = {{.fd = listener, .events = POLLIN}, {.fd = wake[0], .events = POLLIN}};
    struct guest *of[GUESTS + 2] = {0};
    uint64_t due = next_deadline(), time = now(), pause = pause_of_listening();
    nfds_t count = 2;
    int most = served() ? 100 : 60000;
    char bytes[64];
    if (pause) {
        waits[0].fd = -1;
        if (time + pause < due) due = time + pause;
    }
    for (int n = 0; n < GUESTS; n++) {
        struct guest *guest = &guests[n];
        short events = guest->state == SERVED || guest->state == WAITING ? POLLRDHUP : POLLIN;
        if (guest->state == GONE || (guest->state == SERVED && guest->left)) continue;
        if (guest->state == GREETING && guest->target.state == NNPIPE_STATE_GREETED && throttle_wait(&guest->address))
            continue;
        of[count] = guest;
        waits[count++] = (struct pollfd){.fd = guest->socket, .events = events};
    }
    if (due <= time) most = 0;
    else if (due != UINT64_MAX && (due - time) / 1000000 + 1 < (uint64_t)most) most = (int)((due - time) / 1000000) + 1;
    if (poll(waits, count, most) > 0) {
        if (waits[1].revents && read(wake[0], bytes, sizeof bytes) < 0) {}
        for (nfds_t n = 2; n < count; n++) {
            struct guest *guest = of[n];
            if (!waits[n].revents) continue;
            if (guest->state == SERVED) guest->left = 1;
            else if (guest->state == WAITING) send_away(guest, 0, 0);
            else if (guest->state == LEAVING) hear_out(guest);
            else attend(guest);
        }
        if (waits[0].revents) let_in(listener);
    }
    look_at_worker();
    look_at_clocks();
    for (int n = 0; n < GUESTS && !served(); n++)
        if (guests[n].state == WAITING) start_worker(&guests[n]);
}

int main(int count, char **words) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    read_options(&options, count, words);
    memset(guests, 0, sizeof guests); /* so that all memory is there before the first client comes */
    listen_there();
    listen_to_signals();
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("CRuntime is served at %s\n", address_text(&address));
    fflush(stdout);
    while (!stopping) step();
    stop_worker(NNPIPE_CODE_STOPPING, 0);
    for (int n = 0; n < GUESTS; n++)
        if (guests[n].state == GREETING || guests[n].state == WAITING) send_away(&guests[n], NNPIPE_CODE_STOPPING, 0);
    for (int wait = 0; wait < 20; wait++) /* so that the last words arrive */
        for (int n = 0, left = 0; n < GUESTS; n++) {
            if (guests[n].state == LEAVING) hear_out(&guests[n]), left++;
            if (n + 1 == GUESTS && !left) wait = 20;
            else if (n + 1 == GUESTS) poll(0, 0, 10);
        }
    printf("the server has stopped\n");
    return 0;
}
