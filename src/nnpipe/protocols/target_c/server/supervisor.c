#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server.h"

#define SECOND UINT64_C(1000000000)

struct page *page;

static struct guest *client; /* of the worker, or 0 */
static pid_t worker;
static uint64_t left_at, sampled_at, ticks_then;

struct guest *served(void) { return client; }

void start_worker(struct guest *guest) {
    pid_t supervisor = getpid();
    if (!page) page = mmap(0, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) page = 0;
    if (page) {
        page->phase = NNPIPE_WAITING;
        page->request = guest->target.number;
        page->rows_written = 0;
    }
    worker = page ? fork() : -1;
    if (!worker) {
        close_listener();
        for (int n = 0; n < GUESTS; n++)
            if (&guests[n] != guest && guests[n].state != GONE) close(guests[n].socket);
        signal(SIGTERM, SIG_DFL);
        signal(SIGHUP, SIG_DFL);
        signal(SIGINT, SIG_IGN); /* Ctrl-C is for the supervisor, which ends this process */
        signal(SIGCHLD, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() == supervisor ? serve(guest) : 1);
    }
    if (worker < 0) {
        send_away(guest, NNPIPE_CODE_MEMORY, "no process can be started for it");
        return;
    }
    client = guest;
    guest->state = SERVED, guest->arrived = now();
    left_at = sampled_at = ticks_then = 0;
    tell("%s is being served", address_text(&guest->address));
}

/* Free the client's place, with a last word if there is one. */
static void end_client(uint16_t code, const char *text) {
    struct guest *guest = client;
    int sending = page->phase == SENDING; /* then it may have stopped in the middle of a frame */
    client = 0;
    worker = 0;
    guest->target.number = page->request;
    send_away(guest, sending ? 0 : code, text);
}

static const char *signal_text(int number) {
    static char text[24];
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGILL, "SIGILL"},
                 {SIGABRT, "SIGABRT"}, {SIGKILL, "SIGKILL"}, {SIGTERM, "SIGTERM"}, {SIGTRAP, "SIGTRAP"}};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (names[n].number == number) return names[n].name;
    snprintf(text, sizeof text, "signal %d", number);
    return text;
}

static void tell_how_it_ended(int status) {
    char text[96];
    const char *what = page->phase == NNPIPE_RUNNING ? " while it ran the model"
                       : page->phase == NNPIPE_LOADING ? " while it loaded the model" : "";
    if (WIFSIGNALED(status)) snprintf(text, sizeof text, "it ended by %s%s", signal_text(WTERMSIG(status)), what);
    else snprintf(text, sizeof text, "it ended with status %d%s", WEXITSTATUS(status), what);
    tell("the process that served %s: %s", address_text(&client->address), text);
    end_client(NNPIPE_CODE_DIED, text);
}

void stop_worker(uint16_t code, const char *text) {
    uint64_t until = now() + SECOND / 10;
    if (!client) return;
    while (page->phase == SENDING && now() < until) poll(0, 0, 1); /* so that its answer arrives as a whole */
    kill(worker, SIGKILL);
    while (waitpid(worker, 0, 0) < 0 && errno == EINTR) {}
    end_client(code, text);
}

/* -- samples of the worker's resources ---------------------------------------------------------- */

static int read_file(const char *path, char *to, size_t room) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = file < 0 ? -1 : read(file, to, room - 1);
    if (file >= 0) close(file);
    to[count > 0 ? count : 0] = 0;
    return count > 0;
}

static uint64_t kilobytes(const char *text, const char *name) {
    const char *found = strstr(text, name);
    return found ? strtoull(found + strlen(name), 0, 10) * 1024 : 0;
}

static void sample(void) {
    char path[40], text[2048], *at;
    uint8_t *row = page->rows[page->rows_written % ROWS];
    uint64_t time = now(), ticks = 0, pages = 0;
    uint32_t bits;
    float percent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)worker);
    if (!read_file(path, text, sizeof text) || !(at = strrchr(text, ')'))) return;
    for (int field = 2; at && field < 24; field++) { /* after the name come fields 3 and further */
        at = strchr(at + 1, ' ');
        if (at && (field == 13 || field == 14)) ticks += strtoull(at, 0, 10);
        if (at && field == 23) pages = strtoull(at, 0, 10);
    }
    if (sampled_at)
        percent = (float)(ticks - ticks_then) * 100.0f / (float)sysconf(_SC_CLK_TCK) / (float)(time - sampled_at) * 1e9f;
    if (!read_file("/proc/meminfo", text, sizeof text)) return;
    nnpipe_put64(row, time);
    nnpipe_put64(row + 8, pages * (uint64_t)sysconf(_SC_PAGESIZE));
    nnpipe_put64(row + 16, kilobytes(text, "MemTotal:") - kilobytes(text, "MemAvailable:"));
    nnpipe_put64(row + 24, UINT64_MAX);
    memcpy(&bits, &percent, 4);
    nnpipe_put32(row + 32, bits);
    nnpipe_put32(row + 36, 0x7fc00000); /* not a number */
    if (sampled_at) page->rows_written++;
    sampled_at = time, ticks_then = ticks;
}

/* -- watching ----------------------------------------------------------------------------------- */

void look_at_worker(void) {
    char text[64];
    uint64_t time = now();
    uint32_t since;
    int status, loading;
    double most;
    if (!client) return;
    if (waitpid(worker, &status, WNOHANG) == worker) {
        if (WIFEXITED(status) && !WEXITSTATUS(status)) end_client(0, 0);
        else tell_how_it_ended(status);
        return;
    }
    if (client->left && !left_at) left_at = time;
    if (left_at && time - left_at > SECOND) {
        stop_worker(0, 0);
        return;
    }
    since = page->since;
    loading = page->phase == NNPIPE_LOADING;
    most = loading ? options.load_timeout : options.run_timeout;
    if ((page->phase == NNPIPE_RUNNING || loading) && (double)(milliseconds() - since) > most * 1e3) {
        poll(0, 0, 20); /* looked at twice, since it may write while this is read */
        if (page->since == since && page->phase != NNPIPE_WAITING) {
            snprintf(text, sizeof text, "%s took more than %g s", loading ? "loading the model" : "the inference", most);
            tell("%s, its process is killed", text);
            stop_worker(NNPIPE_CODE_TIMEOUT, text);
            return;
        }
    }
    if (time - sampled_at > SECOND / 11) sample();
}
