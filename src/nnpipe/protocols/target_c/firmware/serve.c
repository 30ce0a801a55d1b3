/* A target without an operating system: packets on a UART, the conversation, and one model at a time.  A model is a
 * file with machine code, which is copied to its place as it comes (image.h), checked and called.  There is no malloc. */
#include "board.h"
#include "image.h"
#include "nnpipe_packets.h"
#include "nnpipe_rules.h"
#include "nnpipe_target.h"

extern uint32_t _stack_limit;         /* the lowest word of the stack */
extern uint8_t _model[], _model_end[]; /* where models lie */

enum { MOST_TENSORS = 8, PART = 1 << 14, NOT_A_NUMBER = 0x7FC00000 };
enum { PATTERN = 0x5AC3965Au, CHECK_AT = 20 };

static struct nnpipe_packets line;
static struct nnpipe_target target;
static const struct nnpipe_image *const image = (const struct nnpipe_image *)_model;
static struct nnpipe_tensor tensors[2 * MOST_TENSORS];
static struct nnpipe_model model;
static uint32_t size, arrived; /* bytes of the file that was offered, and of it that are here */
static uint8_t hash[32];
static uint32_t touched; /* bytes of stack that runs of this model have used */
static uint8_t row[40];

/* -- texts ----------------------------------------------------------------------------------------- */

static char text[256];
static uint32_t written;

static void say(const char *words) {
    while (*words && written + 1 < sizeof text) text[written++] = *words++;
    text[written] = 0;
}

static void say_number(uint32_t number) {
    char digits[12];
    uint32_t at = sizeof digits - 1;
    digits[at] = 0;
    do digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    say(digits + at);
}

static uint16_t refuse(uint16_t code, const char *why) {
    say(why);
    target.why = text;
    return code;
}

static uint16_t refuse_sizes(uint16_t code, const char *what, uint32_t first, const char *but, uint32_t second,
                             const char *end) {
    say(what);
    say_number(first);
    say(but);
    say_number(second);
    return refuse(code, end);
}

/* -- the model ------------------------------------------------------------------------------------- */

static uint16_t offer(void *context, uint64_t bytes, const uint8_t sha256[32], uint64_t *had) {
    uint32_t room = (uint32_t)(_model_end - _model), same = size == bytes;
    (void)context;
    written = 0;
    for (int i = 0; i < 32; i++) same &= hash[i] == sha256[i];
    if (bytes > room)
        return refuse_sizes(NNPIPE_CODE_NO_SPACE, "a file of ", bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes,
                            " bytes is offered, there is room for ", room, "");
    *had = same ? arrived : 0;
    if (same) return 0;
    size = (uint32_t)bytes;
    arrived = 0;
    for (int i = 0; i < 32; i++) hash[i] = sha256[i];
    return 0;
}

static uint8_t *place(void *context, uint64_t offset, uint32_t count) {
    (void)context;
    return offset <= size && count <= size - offset ? _model + offset : 0;
}

static uint16_t take(void *context, uint64_t offset, uint32_t count) {
    (void)context;
    if (offset <= arrived && offset + count > arrived) arrived = (uint32_t)offset + count;
    return 0;
}

static uint32_t check_of_image(void) {
    static const uint8_t zeros[4];
    uint32_t crc = nnpipe_crc32(0, _model, CHECK_AT);
    crc = nnpipe_crc32(crc, zeros, 4);
    return nnpipe_crc32(crc, _model + CHECK_AT + 4, size - CHECK_AT - 4);
}

/* 0, or the number of the first tensor, plus 1, whose bytes are not what its type and shape say. */
static uint32_t wrong_tensor(void) {
    static const uint8_t sizes[] = {0, 4, 1, 1, 2, 4, 8, 1, 2, 4};
    for (uint32_t n = 0; n < image->inputs + image->outputs; n++) {
        const struct nnpipe_image_tensor *tensor = &image->tensors[n];
        uint64_t bytes = tensor->type < sizeof sizes ? sizes[tensor->type] : 0;
        for (uint32_t axis = 0; axis < tensor->rank && axis < 6 && bytes <= tensor->bytes; axis++)
            bytes *= tensor->lengths[axis];
        if (tensor->rank > 6 || bytes != tensor->bytes) return n + 1;
    }
    return 0;
}

/* 0, or why the file that came cannot be run. */
static uint16_t check_image(void) {
    static const char magic[6] = {'n', 'n', 'c', 'o', 'd', 'e'};
    uint32_t differs = arrived < sizeof *image, count, end, room;
    written = 0;
    for (int i = 0; i < 6 && !differs; i++) differs |= (uint8_t)magic[i] ^ image->magic[i];
    if (differs || image->version != 2)
        return refuse(NNPIPE_CODE_MODEL, "this is no machine code of nnpipe for a Cortex-M");
    if (image->core != BOARD_CORE)
        return refuse_sizes(NNPIPE_CODE_MODEL, "it is for a cortex-m", image->core, ", this is a cortex-m", BOARD_CORE,
                            "");
    if (image->size != size || arrived != size)
        return refuse_sizes(NNPIPE_CODE_DAMAGED, "the file is cut: ", arrived, " bytes of ", image->size, " came");
    if (check_of_image() != image->check)
        return refuse(NNPIPE_CODE_DAMAGED, "the file is not what its CRC-32 says");
    if (image->address != (uint32_t)_model)
        return refuse_sizes(NNPIPE_CODE_MODEL, "it is for address ", image->address, ", models lie at ",
                            (uint32_t)_model, "");
    end = image->zeros + image->zero_bytes;
    if (end < image->zeros || end > (uint32_t)_model_end)
        return refuse_sizes(NNPIPE_CODE_MEMORY, "it needs ", end - (uint32_t)_model, " bytes of memory, there are ",
                            (uint32_t)(_model_end - _model), "");
    room = (uint32_t)((uint8_t *)__builtin_frame_address(0) - (uint8_t *)&_stack_limit);
    if (image->stack_bytes > room)
        return refuse_sizes(NNPIPE_CODE_MEMORY, "it needs ", image->stack_bytes, " bytes of stack, there are ", room, "");
    count = image->inputs + image->outputs;
    if (image->inputs > MOST_TENSORS || image->outputs > MOST_TENSORS)
        return refuse_sizes(NNPIPE_CODE_MODEL, "it has ", count, " tensors, of either kind there may be ", MOST_TENSORS,
                            "");
    count = size < sizeof *image + count * sizeof *image->tensors ? 1 : wrong_tensor();
    if (count)
        return refuse_sizes(NNPIPE_CODE_MODEL, "tensor ", count, " of ", image->inputs + image->outputs,
                            " is not what it says");
    return 0;
}

/* Facts for the host, as JSON. */
static const char *described(void) {
    const struct {
        const char *name;
        uint32_t value;
    } facts[] = {
        {"\",\"flash_bytes\":", image->flash_bytes}, {",\"arena_bytes\":", image->zero_bytes},
        {",\"data_bytes\":", image->data_bytes},     {",\"stack_predicted_bytes\":", image->stack_bytes},
        {",\"room_bytes\":", (uint32_t)(_model_end - _model)},
    };
    written = 0;
    say("{\"io\":{},\"about\":{\"board\":\"" BOARD_NAME "\",\"core\":\"cortex-m");
    say_number(BOARD_CORE);
    for (uint32_t n = 0; n < sizeof facts / sizeof *facts; n++) {
        say(facts[n].name);
        say_number(facts[n].value);
    }
    say("}}");
    return text;
}

static uint16_t load(void *context, uint64_t *counts, const struct nnpipe_model **loaded) {
    uint64_t began = board_count();
    uint16_t code = check_image();
    uint32_t bytes = 0;
    uint8_t *end;
    (void)context;
    if (code) {
        arrived = 0; /* what is here is of no use: let it be sent again */
        return code;
    }
    end = (uint8_t *)image->zeros + image->zero_bytes;
    for (uint8_t *at = (uint8_t *)image->zeros; at < end; at++) *at = 0;
    __asm__ volatile("dsb\n isb" ::: "memory");
    for (uint32_t n = 0; n < image->inputs + image->outputs; n++) {
        uint32_t output = n >= image->inputs;
        const struct nnpipe_image_tensor *tensor = &image->tensors[n];
        tensors[n].place = output ? (uint8_t *)image->output(tensor->number) : image->input(tensor->number);
        tensors[n].bytes = tensor->bytes;
        if (!output) bytes += (tensors[n].bytes + 7) & ~7u;
    }
    model.inputs = tensors;
    model.outputs = tensors + image->inputs;
    model.input_count = image->inputs;
    model.output_count = image->outputs;
    model.kept = bytes <= (uint32_t)(_model_end - end) ? end : 0;
    model.reset = image->reset;
    model.about = described();
    touched = 0;
    *loaded = &model;
    *counts = board_count() - began;
    return 0;
}

static uint16_t run(void *context, uint64_t stamps[2]) {
    uint32_t *stack = __builtin_frame_address(0), *lowest = &_stack_limit, interrupts = board_interrupts();
    (void)context;
    nnpipe_packets_flush(&line);
    board_flush();
    __asm__ volatile("mov %0, sp" : "=r"(stack));
    for (volatile uint32_t *at = &_stack_limit; at < stack; at++) *at = PATTERN;
    stamps[0] = board_count();
    image->run();
    stamps[1] = board_count();
    while (lowest < stack && *lowest == PATTERN) lowest++;
    /* An interrupt writes to the stack, too; then the size is only taken if none else is known. */
    if (interrupts == board_interrupts() || !touched) {
        uint32_t used = (uint32_t)(stack - lowest) * 4;
        if (used > touched) touched = used;
    }
    return 0;
}

static uint32_t rows(void *context, const uint8_t **found) {
    (void)context;
    if (!target.model) return 0;
    nnpipe_put64(row, board_count());
    nnpipe_put64(row + 8, image->data_bytes + image->zero_bytes + touched);
    nnpipe_put64(row + 16, size + image->zero_bytes + touched);
    nnpipe_put64(row + 24, UINT64_MAX);
    nnpipe_put32(row + 32, NOT_A_NUMBER);
    nnpipe_put32(row + 36, NOT_A_NUMBER);
    *found = row;
    return sizeof row;
}

/* -- the line -------------------------------------------------------------------------------------- */

static void write(void *context, const uint8_t *bytes, uint32_t count) {
    (void)context;
    nnpipe_packets_send(&line, bytes, count);
}

static uint64_t count(void *context) {
    (void)context;
    return board_count();
}

/* A fault has ended what was done last. */
void give_up(void) {
    if (!target.owner) return;
    nnpipe_refuse(&target, NNPIPE_CODE_DIED,
                  "the model did what the processor does not allow, and the board began anew");
    nnpipe_packets_close(&line);
    board_flush();
}

void serve(void) {
    static struct nnpipe_owner owner = {
        .part = PART, .extensions = NNPIPE_INFER_EXTENSION, .write = write, .count = count, .offer = offer,
        .place = place, .take = take, .load = load, .run = run, .rows = rows,
    };
    uint8_t nonce[16] = {0}; /* there is no token, so it proves nothing */
    int talking = 0;
    owner.largest = (uint32_t)(_model_end - _model);
    owner.counter = board_counter;
    owner.rate = board_rate;
    nnpipe_packets_begin(&line, board_write);
    for (;;) {
        uint8_t content, *to;
        switch (nnpipe_packet_byte(&line, board_read(), &content)) {
        case NNPIPE_PACKET_OPENED:
            nnpipe_begin(&target, &owner, 0, nonce);
            talking = 1;
            break;
        case NNPIPE_PACKET_OVER: talking = 0; break;
        case NNPIPE_PACKET_CONTENT:
            if (!talking) break;
            nnpipe_target_wanted(&target, &to);
            *to = content;
            talking = nnpipe_heard(&target, 1);
            nnpipe_packets_flush(&line);
            if (!talking) nnpipe_packets_close(&line);
            break;
        case NNPIPE_PACKET_NOTHING: break;
        }
    }
}
