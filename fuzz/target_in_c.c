/* Fuzzing of the target in C: any bytes, in any pieces, end in answers or in one ERROR.
 *
 *     core=src/nnpipe/protocols/target_c
 *     clang -g -fsanitize=fuzzer,address,undefined -I $core -o build/target_in_c fuzz/target_in_c.c $core/nnpipe_*.c
 *     mkdir -p build/corpus_c && build/target_in_c build/corpus_c -max_len=4096 -max_total_time=600
 *
 * Without clang, the same function is called with as many random inputs as the command line says:
 *
 *     gcc -g -DALONE -fsanitize=address,undefined -I $core -o build/target_in_c fuzz/target_in_c.c $core/nnpipe_*.c
 *     build/target_in_c 1000000
 *
 * The first byte of an input chooses a token, how far the conversation is already, and whether the rest is heard as it is
 * or read as a list of frames that get right headers and checks, since no mutation ever finds those.  The second says how
 * it is cut.  The model and its owner are those of tests/protocols/target_c/answering.c. */
#define main answering_main
#include "../tests/protocols/target_c/answering.c"
#undef main

enum { WITH_TOKEN = 1, GREETED = 2, LOADED = 4, FRAMED = 8, MOST = 1 << 16 };

static int goes_on;
static uint32_t next_number;

static void hear(const uint8_t *bytes, uint32_t count, uint32_t cut) {
    uint8_t *copy = malloc(count ? count : 1);
    if (!copy) abort();
    if (count) memcpy(copy, bytes, count);
    for (uint32_t at = 0; at < count && goes_on;) {
        uint8_t *to;
        uint32_t most = nnpipe_target_wanted(&target, &to), piece = 1 + (at * 7 + cut) % (cut + 1);
        if (!most) abort();
        if (most > piece) most = piece;
        if (most > count - at) most = count - at;
        memcpy(to, copy + at, most);
        at += most;
        goes_on = nnpipe_heard(&target, most);
    }
    free(copy);
}

static void ask(uint8_t kind, uint8_t flags, const uint8_t *payload, uint32_t count, uint32_t cut) {
    uint8_t frame[NNPIPE_HEADER_BYTES];
    nnpipe_pack_header(frame, kind, flags, next_number++, count, nnpipe_crc32(0, payload, count));
    hear(frame, sizeof frame, cut);
    hear(payload, count, cut);
}

static void greet_and_load(uint8_t mode) {
    uint8_t hello[32] = {1, 1, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 255, 255}, offered_model[42] = {16}, part[24] = {0}, proof[32];
    ask(NNPIPE_HELLO, 0, hello, sizeof hello, 255);
    if (mode & WITH_TOKEN) {
        nnpipe_prove(with_token.token, with_token.token_bytes, "nnpipe host", target.said, proof);
        ask(NNPIPE_AUTH, 0, proof, sizeof proof, 255);
    }
    if (!(mode & LOADED)) return;
    ask(NNPIPE_MODEL, NNPIPE_FLAG_BEGIN, offered_model, sizeof offered_model, 255);
    ask(NNPIPE_MODEL, NNPIPE_FLAG_PART, part, sizeof part, 255);
    ask(NNPIPE_MODEL, NNPIPE_FLAG_END, 0, 0, 255);
    if (!goes_on || target.state != NNPIPE_STATE_READY) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint8_t nonce[16];
    uint8_t mode = size ? data[0] : 0, cut = size > 1 ? data[1] : 0;
    uint32_t at = 2, end = (uint32_t)(size < MOST ? size : MOST);
    if (size < 2) return 0;
    said_bytes = 0;
    offered = had = 0;
    goes_on = 1;
    next_number = 0xFFFFFFF0u;
    nnpipe_begin(&target, mode & WITH_TOKEN ? &with_token : &without_token, 0, nonce);
    if (mode & (GREETED | LOADED)) greet_and_load(mode);
    if (!(mode & FRAMED)) hear(data + 2, end - 2, cut);
    while (mode & FRAMED && goes_on && end - at >= 4) { /* kind, flags, length, whether it is long */
        uint32_t length = data[at + 2] * (data[at + 3] & 1 ? 16u : 1u), there = end - at - 4;
        ask(data[at], data[at + 1], data + at + 4, length < there ? length : there, cut);
        at += 4 + (length < there ? length : there);
    }
    if (goes_on != (target.state != NNPIPE_STATE_CLOSED)) abort();
    return 0;
}

#ifdef ALONE
int main(int count_of_words, char **words) {
    static uint8_t data[4096];
    static const uint8_t kinds[] = {3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 11, 11};
    uint64_t state = 88172645463325252u;
    long inputs = count_of_words > 1 ? atol(words[1]) : 100000;
    long heard[9] = {0};
    for (long n = 0; n < inputs; n++) {
        uint32_t size = 0;
        for (int i = 0; i < 2 + (int)(state >> 20 & 255); i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            data[size++] = (uint8_t)(state >> 32);
        }
        if (data[0] & FRAMED) /* mostly kinds, flags and lengths that mean something */
            for (uint32_t at = 2; at + 4 < size; at += 4 + data[at + 2]) {
                if (data[at] % 8) data[at] = kinds[data[at] % sizeof kinds];
                if (data[at + 1] % 8) data[at + 1] = data[at] == 4 ? data[at + 1] % 3 : 0;
                if (data[at + 2] % 8) data[at + 2] = data[at] == 3 || data[at] == 11 ? 24 : data[at] == 4 ? data[at + 2] % 90 : 0;
                data[at + 3] &= 0xFE;
            }
        LLVMFuzzerTestOneInput(data, size);
        heard[target.state]++;
    }
    printf("%ld inputs; ended", inputs);
    for (int s = 0; s < 9; s++) printf(" %ld", heard[s]);
    printf(" (by state)\n");
    free(said);
    return 0;
}
#endif
