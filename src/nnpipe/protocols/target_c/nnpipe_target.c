#include "nnpipe_inside.h"

enum { RULES = sizeof nnpipe_rules / sizeof *nnpipe_rules };

void nnpipe_begin(struct nnpipe_target *target, const struct nnpipe_owner *owner, void *context,
                  const uint8_t nonce[16]) {
    uint8_t *at = (uint8_t *)target;
    for (uint32_t n = 0; n < sizeof *target; n++) at[n] = 0;
    target->owner = owner;
    target->context = context;
    for (uint32_t n = 0; n < 16; n++) target->said[48 + n] = nonce[n];
    nnpipe_receive(&target->in);
}

uint32_t nnpipe_target_wanted(struct nnpipe_target *target, uint8_t **to) { return nnpipe_wanted(&target->in, to); }

/* The rule of a request in the present state, or 0. */
static const struct nnpipe_rule *rule_of(const struct nnpipe_target *target, uint8_t state, uint8_t kind,
                                         uint8_t step) {
    for (uint32_t n = 0; n < RULES; n++) {
        const struct nnpipe_rule *rule = &nnpipe_rules[n];
        if (rule->kind == kind && rule->step == step && rule->states >> state & 1 &&
            !(rule->extension & ~target->extensions))
            return rule;
    }
    return 0;
}

/* The rule of a request that was sent ahead, and that an earlier failure has made void, or 0. */
static const struct nnpipe_rule *void_rule(const struct nnpipe_target *target, uint8_t kind, uint8_t flags) {
    const int with_model = target->state == NNPIPE_STATE_READY || target->state == NNPIPE_STATE_LOADED ||
                           target->state == NNPIPE_STATE_DONE;
    if (!(target->extensions & NNPIPE_PIPELINING_EXTENSION) || !target->failed) return 0;
    if (with_model && (kind == NNPIPE_PROCESS || kind == NNPIPE_OUTPUT))
        return rule_of(target, NNPIPE_STATE_DONE, kind, 0);
    if (target->state == NNPIPE_STATE_EMPTY && kind == NNPIPE_MODEL && flags == NNPIPE_FLAG_PART)
        return rule_of(target, NNPIPE_STATE_RECEIVING, kind, flags);
    return 0;
}

static int is_request(uint8_t kind) {
    for (uint32_t n = 0; n < RULES; n++)
        if (nnpipe_rules[n].kind == kind) return 1;
    return 0;
}

/* Find where an input goes once its predecessors, and the zeros after them, have come. */
static void place_tensor(struct nnpipe_target *target) {
    const struct nnpipe_model *model = target->model;
    while (target->tensor < 2 * model->input_count && !target->in.room) {
        uint32_t number = target->tensor / 2;
        if (target->tensor++ % 2) {
            target->in.place = target->small;
            target->in.room = nnpipe_padding_after(model->inputs, model->input_count, number);
        } else {
            target->in.place = model->inputs[number].place;
            target->in.room = model->inputs[number].bytes;
        }
    }
}

/* Set the place of a payload whose header was right. */
static void place(struct nnpipe_target *target) {
    const uint32_t length = target->in.header.length;
    struct nnpipe_receiver *in = &target->in;
    const uint8_t bound = target->rule->bound;
    target->refused = 0;
    if (target->skipped) return;
    if (bound == NNPIPE_BOUND_TENSORS) {
        const struct nnpipe_model *model = target->model;
        target->refused = nnpipe_bytes_of(model->inputs, model->input_count) != length;
        target->tensor = 0;
        if (target->refused) return;
        if (model->kept) in->place = model->kept, in->room = length;
        else place_tensor(target);
    } else if (bound == NNPIPE_BOUND_HELLO) {
        in->place = target->said, in->room = HANDSHAKE;
    } else {
        in->place = target->small;
        in->room = bound == NNPIPE_BOUND_PART ? OFFSET : sizeof target->small;
    }
}

/* Set where a payload goes on whose first place is full. */
static void place_rest(struct nnpipe_target *target) {
    const struct nnpipe_owner *owner = target->owner;
    struct nnpipe_receiver *in = &target->in;
    if (target->rule->bound == NNPIPE_BOUND_TENSORS) {
        place_tensor(target);
    } else if (target->rule->bound == NNPIPE_BOUND_PART && !target->refused) {
        target->why = 0;
        if (owner->place) in->place = owner->place(target->context, nnpipe_get64(target->small), in->left);
        in->room = in->left;
        target->refused = !in->place;
    }
}

/* Whether a request may come now, as its header says; nothing of its payload has been read. */
static int admit(struct nnpipe_target *target) {
    const struct nnpipe_header *header = &target->in.header;
    const uint8_t kind = header->kind, flags = header->flags, step = kind == NNPIPE_MODEL ? flags : 0;
    uint64_t most;
    if (!is_request(kind)) {
        nnpipe_say_anew(target, "a frame of kind ");
        nnpipe_say_number(target, kind);
        nnpipe_say(target, " came, which is not a request");
        return 0;
    }
    if (target->state != NNPIPE_STATE_NEW && header->number != target->number + 1) {
        nnpipe_say_anew(target, "a request came twice, or one before it is missing");
        return 0;
    }
    target->rule = rule_of(target, target->state, kind, step);
    target->skipped = !target->rule;
    if (target->rule) target->failed = 0;
    else target->rule = void_rule(target, kind, flags);
    nnpipe_say_anew(target, nnpipe_kind_names[kind]);
    if (!target->rule || (flags && kind != NNPIPE_MODEL && !(kind == NNPIPE_STATS && flags == NNPIPE_FLAG_CLOCK))) {
        nnpipe_say(target, " with flags ");
        nnpipe_say_number(target, flags);
        nnpipe_say(target, " came, which is not allowed now");
        return 0;
    }
    switch (target->rule->bound) {
    case NNPIPE_BOUND_PART: most = target->owner->part + (uint64_t)OFFSET; break;
    case NNPIPE_BOUND_TENSORS: most = target->owner->largest; break;
    default: most = nnpipe_bounds[target->rule->bound];
    }
    if (header->length > most) {
        nnpipe_say(target, " announces ");
        nnpipe_say_number(target, header->length);
        nnpipe_say(target, " bytes, ");
        nnpipe_say_number(target, most);
        nnpipe_say(target, " are the most");
        return 0;
    }
    return 1;
}

int nnpipe_heard(struct nnpipe_target *target, uint32_t count) {
    enum nnpipe_event event = nnpipe_took(&target->in, count);
    if (event == NNPIPE_HEADED) {
        if (!admit(target)) return nnpipe_break_off(target);
        place(target);
        if (target->in.left) return 1;
        event = nnpipe_took(&target->in, 0);
    }
    switch (event) {
    case NNPIPE_FULL: place_rest(target); return 1;
    case NNPIPE_FRAME: return nnpipe_answer(target);
    case NNPIPE_BROKEN: target->why = target->in.wrong; return nnpipe_break_off(target);
    default: return 1;
    }
}
