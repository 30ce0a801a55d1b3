#include "nnpipe_inside.h"

static void greet(struct nnpipe_target *target) {
    const struct nnpipe_owner *owner = target->owner;
    uint8_t *reply = target->said + 32; /* its last 16 bytes are the nonce */
    const uint8_t *said = target->said;
    uint16_t code;
    if (target->in.header.length != 32) {
        nnpipe_say_anew(target, "a HELLO has 32 bytes");
        nnpipe_break_off(target);
        return;
    }
    if (said[0] > NNPIPE_VERSION || said[1] < NNPIPE_VERSION) {
        nnpipe_say_anew(target, "the host speaks versions ");
        nnpipe_say_number(target, said[0]);
        nnpipe_say(target, " to ");
        nnpipe_say_number(target, said[1]);
        nnpipe_say(target, " of the protocol, this target speaks 1");
        nnpipe_refuse(target, NNPIPE_CODE_VERSION, target->why);
        return;
    }
    if (owner->greet && (code = owner->greet(target->context)) != 0) {
        nnpipe_refuse(target, code, target->why);
        return;
    }
    target->extensions = nnpipe_get32(said + 4) & owner->extensions;
    target->sendable = nnpipe_get32(said + 12);
    reply[0] = NNPIPE_VERSION;
    reply[1] = 1; /* crc32 */
    reply[2] = owner->token != 0;
    reply[3] = 0;
    nnpipe_put32(reply + 4, target->extensions);
    nnpipe_put32(reply + 8, owner->largest);
    nnpipe_put32(reply + 12, owner->part);
    nnpipe_ok(target, reply, 32, 0, 0);
    if (owner->token) target->state = NNPIPE_STATE_GREETED;
}

static void authenticate(struct nnpipe_target *target) {
    const struct nnpipe_owner *owner = target->owner;
    uint8_t proof[32], differs = target->in.header.length != sizeof proof;
    owner->prove(owner->token, owner->token_bytes, "nnpipe host", target->said, proof);
    for (uint32_t n = 0; n < sizeof proof; n++) differs |= proof[n] ^ target->small[n]; /* takes equally long always */
    if (differs) {
        nnpipe_refuse(target, NNPIPE_CODE_AUTHENTICATION, 0);
        return;
    }
    owner->prove(owner->token, owner->token_bytes, "nnpipe target", target->said, proof);
    nnpipe_ok(target, proof, sizeof proof, 0, 0);
}

static void offered(struct nnpipe_target *target) {
    uint64_t had = 0;
    uint8_t reply[8];
    uint16_t code;
    if (target->in.header.length < DESCRIPTION_HEAD) {
        nnpipe_say_anew(target, "a MODEL without size and SHA-256 came");
        nnpipe_break_off(target);
        return;
    }
    target->model = 0;
    code = target->owner->offer(target->context, nnpipe_get64(target->small), target->small + 8, &had);
    if (code) {
        nnpipe_error(target, code);
        return;
    }
    nnpipe_put64(reply, had);
    nnpipe_ok(target, reply, sizeof reply, 0, 0);
}

static void take_part(struct nnpipe_target *target) {
    uint32_t length = target->in.header.length;
    uint16_t code = NNPIPE_CODE_MODEL;
    if (length < OFFSET) nnpipe_say_anew(target, "a part without an offset came");
    else if (!target->refused && target->owner->take)
        code = target->owner->take(target->context, nnpipe_get64(target->small), length - OFFSET);
    if (code) nnpipe_error(target, code);
    else nnpipe_ok(target, 0, 0, 0, 0);
}

static void load(struct nnpipe_target *target) {
    const struct nnpipe_model *model = 0;
    uint8_t reply[8];
    uint32_t length = 0;
    uint16_t code;
    target->load = 0;
    if (target->owner->phase) target->owner->phase(target->context, NNPIPE_LOADING, target->number);
    code = target->owner->load(target->context, &target->load, &model);
    if (code || !model) {
        nnpipe_error(target, code ? code : NNPIPE_CODE_MODEL);
        return;
    }
    if (nnpipe_bytes_of(model->inputs, model->input_count) > target->owner->largest) {
        nnpipe_error_about_size(target, "the inputs take ", nnpipe_bytes_of(model->inputs, model->input_count), " bytes, ",
                         target->owner->largest, " are taken");
        return;
    }
    target->model = model;
    target->inferences = 0;
    nnpipe_put64(reply, target->load);
    while (model->about && model->about[length]) length++;
    nnpipe_ok(target, reply, sizeof reply, model->about, length);
}

/* Whether the inputs fit the model; if not, that has been answered. */
static int put(struct nnpipe_target *target) {
    if (target->refused) {
        nnpipe_error_about_size(target, "the tensors take ", nnpipe_bytes_of(target->model->inputs, target->model->input_count),
                         " bytes, ", target->in.header.length, " came");
        return 0;
    }
    target->used_up = 0;
    return 1;
}

/* Run the model; fills three of the stamps, and gives 0 or the code of an error. */
static uint16_t run(struct nnpipe_target *target, uint64_t received, uint8_t stamps[32]) {
    const struct nnpipe_owner *owner = target->owner;
    const struct nnpipe_model *model = target->model;
    const uint8_t *from = model->kept;
    uint64_t ran[2] = {0, 0};
    uint16_t code;
    for (uint32_t n = 0; from && n < model->input_count; n++) { /* a run may overwrite its inputs */
        for (uint32_t i = 0; i < model->inputs[n].bytes; i++) model->inputs[n].place[i] = from[i];
        from += model->inputs[n].bytes + nnpipe_padding_after(model->inputs, model->input_count, n);
    }
    if (model->reset) model->reset(); /* each run starts afresh */
    if (owner->phase) owner->phase(target->context, NNPIPE_RUNNING, target->number);
    ran[0] = owner->count(target->context);
    code = owner->run(target->context, ran);
    if (!ran[1]) ran[1] = owner->count(target->context);
    nnpipe_put64(stamps, received);
    nnpipe_put64(stamps + 8, ran[0]);
    nnpipe_put64(stamps + 16, ran[1]);
    target->used_up = !model->kept;
    if (!code) target->inferences++;
    return code;
}

static void process(struct nnpipe_target *target, uint64_t received) {
    uint8_t stamps[32];
    uint16_t code;
    if (target->used_up) {
        nnpipe_say_anew(target, "a run uses up the inputs here: send them again");
        nnpipe_error(target, NNPIPE_CODE_RUNTIME);
        return;
    }
    nnpipe_send_head(target, NNPIPE_OK, NNPIPE_FLAG_STARTED, target->number, 0, 0);
    code = run(target, received, stamps);
    if (code) {
        nnpipe_error(target, code);
        return;
    }
    nnpipe_put64(stamps + 24, target->owner->count(target->context));
    nnpipe_ok(target, stamps, sizeof stamps, 0, 0);
}

/* Answer with the outputs, after so many bytes of stamps. */
static void get(struct nnpipe_target *target, const uint8_t *stamps, uint32_t count) {
    const struct nnpipe_model *model = target->model;
    const struct nnpipe_tensor *outputs = model->outputs;
    uint64_t size = nnpipe_bytes_of(outputs, model->output_count);
    uint32_t check = nnpipe_crc32(0, stamps, count);
    if (size > target->sendable || size > UINT32_MAX - count) {
        nnpipe_error_about_size(target, "the outputs take ", size, " bytes, the host takes ", target->sendable, "");
        return;
    }
    for (uint32_t n = 0; n < model->output_count; n++) {
        check = nnpipe_crc32(check, outputs[n].place, outputs[n].bytes);
        check = nnpipe_crc32(check, nnpipe_zeros, nnpipe_padding_after(outputs, model->output_count, n));
    }
    target->state = target->rule->on_ok;
    nnpipe_send_head(target, NNPIPE_OK, 0, target->number, (uint32_t)size + count, check);
    if (count) target->owner->write(target->context, stamps, count);
    for (uint32_t n = 0; n < model->output_count; n++) {
        uint32_t padding = nnpipe_padding_after(outputs, model->output_count, n);
        if (outputs[n].bytes) target->owner->write(target->context, outputs[n].place, outputs[n].bytes);
        if (padding) target->owner->write(target->context, nnpipe_zeros, padding);
    }
}

static void infer(struct nnpipe_target *target, uint64_t received) {
    uint8_t stamps[32];
    uint16_t code;
    if (!put(target)) return;
    code = run(target, received, stamps);
    if (code) {
        nnpipe_error(target, code);
        return;
    }
    nnpipe_put64(stamps + 24, target->owner->count(target->context));
    get(target, stamps, sizeof stamps);
}

static void tell_stats(struct nnpipe_target *target, uint64_t received) {
    const struct nnpipe_owner *owner = target->owner;
    const uint8_t *rows = 0;
    uint8_t reply[48] = {0};
    uint32_t bytes = 0;
    if (!(target->in.header.flags & NNPIPE_FLAG_CLOCK) && owner->rows) bytes = owner->rows(target->context, &rows);
    reply[0] = owner->counter;
    nnpipe_put32(reply + 4, NNPIPE_ROW_BYTES);
    nnpipe_put64(reply + 8, owner->rate);
    nnpipe_put64(reply + 16, received);
    nnpipe_put64(reply + 32, target->inferences);
    nnpipe_put64(reply + 40, target->load);
    nnpipe_put64(reply + 24, owner->count(target->context));
    nnpipe_ok(target, reply, sizeof reply, rows, bytes);
}

int nnpipe_answer(struct nnpipe_target *target) {
    const uint8_t flags = target->in.header.flags;
    uint64_t received = target->owner->count(target->context);
    target->number = target->in.header.number;
    target->why = target->refused ? target->why : 0;
    if (target->skipped) {
        target->why = 0;
        nnpipe_error(target, NNPIPE_CODE_SKIPPED);
        return 1;
    }
    switch (target->rule->kind) {
    case NNPIPE_HELLO: greet(target); break;
    case NNPIPE_AUTH: authenticate(target); break;
    case NNPIPE_MODEL:
        if (flags == NNPIPE_FLAG_BEGIN) offered(target);
        else if (flags == NNPIPE_FLAG_PART) take_part(target);
        else load(target);
        break;
    case NNPIPE_DATA:
        if (put(target)) nnpipe_ok(target, 0, 0, 0, 0);
        break;
    case NNPIPE_PROCESS: process(target, received); break;
    case NNPIPE_OUTPUT: get(target, 0, 0); break;
    case NNPIPE_INFER: infer(target, received); break;
    default: tell_stats(target, received);
    }
    if (target->owner->phase) target->owner->phase(target->context, NNPIPE_WAITING, target->number);
    return target->state != NNPIPE_STATE_CLOSED;
}
