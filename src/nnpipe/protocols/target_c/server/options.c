#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"
#include "server.h"

static void usage(FILE *to) {
    fprintf(to,
            "usage: %s [options]\n\n"
            "Serve the models that are linked with this program to hosts of nnpipe, one after another.\n\n"
            "  --host ADDRESS          address at which to listen (default: 127.0.0.1)\n"
            "  --port PORT             TCP port; 0 takes a free one (default: 12345)\n"
            "  --token-file FILE       file with the token that clients must know\n"
            "  --insecure              serve everybody who can reach the address, without a token\n"
            "  --timeout S             seconds without a byte after which a request is given up (default: 10)\n"
            "  --greeting-timeout S    seconds in which a client must identify itself (default: 10)\n"
            "  --idle-timeout S        seconds without a request after which a client must go (default: 300)\n"
            "  --run-timeout S         seconds that one inference may take (default: 60)\n"
            "  --models                list the models, and end\n",
            "server");
}

static void fail(const char *text, const char *what) {
    fprintf(stderr, "server: %s%s\n", text, what);
    exit(2);
}

static void read_token(struct options *into, const char *path) {
    FILE *file = fopen(path, "rb");
    static uint8_t bytes[TOKEN_ROOM + 1];
    size_t count, from = 0;
    if (!file) fail("cannot read the token from ", path);
    count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    while (count && strchr(" \t\r\n\v\f", bytes[count - 1])) count--;
    while (from < count && strchr(" \t\r\n\v\f", bytes[from])) from++;
    if (count - from < 16 || count - from > TOKEN_ROOM) fail("a token has 16 to 4096 bytes, not so that of ", path);
    memcpy(into->token, bytes + from, count - from);
    into->token_bytes = (uint32_t)(count - from);
}

static double seconds(const char *text) {
    char *end;
    double found = strtod(text, &end);
    if (*end || !(found >= 0.01 && found <= 1e9)) fail("not a number of seconds: ", text);
    return found;
}

static uint16_t port(const char *text) {
    char *end;
    unsigned long found = text ? strtoul(text, &end, 10) : 0;
    if (text && (!*text || *end || found > 65535)) fail("not a TCP port: ", text);
    return (uint16_t)found;
}

static void list_models(void) {
    for (uint32_t m = 0; m < nnpipe_model_count; m++) {
        const struct nnpipe_linked_model *model = &nnpipe_models[m];
        printf("%s  %u bytes of arena  ", model->name, (unsigned)*model->arena_bytes);
        for (int n = 0; n < 32; n++) printf("%02x", model->sha256[n]);
        printf("\n");
    }
    exit(0);
}

void read_options(struct options *into, int count, char **words) {
    const char *token_file = 0;
    struct {
        const char *name;
        double *to;
    } times[] = {
        {"--timeout", &into->timeout}, {"--greeting-timeout", &into->greeting_timeout},
        {"--idle-timeout", &into->idle_timeout}, {"--run-timeout", &into->run_timeout},
    };
    into->host = "127.0.0.1", into->port = 12345;
    into->timeout = into->greeting_timeout = 10, into->idle_timeout = 300, into->run_timeout = 60, into->load_timeout = 60;
    for (int n = 1; n < count; n++) {
        const char *word = words[n], *value = n + 1 < count ? words[n + 1] : 0;
        int known = 0;
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
            usage(stdout);
            exit(0);
        }
        if (!strcmp(word, "--models")) list_models();
        if (!strcmp(word, "--insecure")) {
            into->insecure = 1;
            continue;
        }
        for (size_t t = 0; t < sizeof times / sizeof *times; t++)
            if (!strcmp(word, times[t].name)) {
                if (!value) fail("a value is missing after ", word);
                *times[t].to = seconds(value), known = 1;
            }
        if (!strcmp(word, "--host")) into->host = value, known = 1;
        if (!strcmp(word, "--port")) into->port = port(value), known = 1;
        if (!strcmp(word, "--token-file")) token_file = value, known = 1;
        if (!known) fail("there is no option ", word);
        if (!value) fail("a value is missing after ", word);
        n++;
    }
    if (into->insecure && token_file) fail("--insecure asks for no token, --token-file for one: give one of the two", "");
    if (token_file) read_token(into, token_file);
}
