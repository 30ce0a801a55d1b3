#include "nnpipe_inside.h"

enum { MOST_TEXT = 4092 };

void nnpipe_say(struct nnpipe_target *target, const char *text) {
    uint32_t at = 0;
    while (target->text[at]) at++;
    while (*text && at + 1 < sizeof target->text) target->text[at++] = *text++;
    target->text[at] = 0;
}

void nnpipe_say_number(struct nnpipe_target *target, uint64_t number) {
    char digits[28];
    uint32_t at = sizeof digits - 1, written = 0;
    digits[at] = 0;
    do {
        if (written && written % 3 == 0) digits[--at] = ',';
        digits[--at] = (char)('0' + number % 10);
        written++;
    } while (number /= 10);
    nnpipe_say(target, digits + at);
}

void nnpipe_say_anew(struct nnpipe_target *target, const char *text) {
    target->text[0] = 0;
    target->why = target->text;
    nnpipe_say(target, text);
}

const uint8_t nnpipe_zeros[TENSOR_PADDING];

uint32_t nnpipe_padding_after(const struct nnpipe_tensor *tensors, uint32_t count, uint32_t number) {
    return number + 1 < count ? (0u - tensors[number].bytes) % TENSOR_PADDING : 0;
}

/* The bytes of a payload of tensors; more than a frame can hold if it is too large. */
uint64_t nnpipe_bytes_of(const struct nnpipe_tensor *tensors, uint32_t count) {
    uint64_t sum = 0;
    for (uint32_t n = 0; n < count; n++) sum += tensors[n].bytes + nnpipe_padding_after(tensors, count, n);
    return sum;
}

void nnpipe_send_head(struct nnpipe_target *target, uint8_t kind, uint8_t flags, uint32_t number, uint32_t length,
                      uint32_t check) {
    uint8_t head[NNPIPE_HEADER_BYTES];
    nnpipe_pack_header(head, kind, flags, number, length, check);
    target->owner->write(target->context, head, sizeof head);
}

/* A payload in two pieces. */
static void send(struct nnpipe_target *target, uint8_t kind, uint8_t flags, uint32_t number, const uint8_t *first,
                 uint32_t count, const void *second, uint32_t more) {
    nnpipe_send_head(target, kind, flags, number, count + more, nnpipe_crc32(nnpipe_crc32(0, first, count), second, more));
    if (count) target->owner->write(target->context, first, count);
    if (more) target->owner->write(target->context, second, more);
}

static void send_text(struct nnpipe_target *target, uint8_t kind, uint8_t flags, uint32_t number, uint8_t low,
                      uint8_t high, const char *text) {
    const uint8_t head[4] = {low, high, 0, 0};
    uint32_t length = 0;
    while (text && text[length] && length < MOST_TEXT) length++;
    send(target, kind, flags, number, head, sizeof head, text, length);
}

void nnpipe_ok(struct nnpipe_target *target, const uint8_t *first, uint32_t count, const void *second, uint32_t more) {
    if (target->rule->on_ok != NNPIPE_SAME_STATE) target->state = target->rule->on_ok;
    send(target, NNPIPE_OK, 0, target->number, first, count, second, more);
}

void nnpipe_error(struct nnpipe_target *target, uint16_t code) {
    if (!target->skipped) {
        if (target->rule->on_error != NNPIPE_SAME_STATE) target->state = target->rule->on_error;
        target->failed = 1;
    }
    send_text(target, NNPIPE_ERROR, 0, target->number, (uint8_t)code, (uint8_t)(code >> 8), target->why);
}

/* An ERROR about tensors of another size than is taken. */
void nnpipe_error_about_size(struct nnpipe_target *target, const char *what, uint64_t bytes, const char *but,
                             uint64_t others, const char *end) {
    nnpipe_say_anew(target, what);
    nnpipe_say_number(target, bytes);
    nnpipe_say(target, but);
    nnpipe_say_number(target, others);
    nnpipe_say(target, end);
    nnpipe_error(target, NNPIPE_CODE_TENSORS);
}

void nnpipe_refuse(struct nnpipe_target *target, uint16_t code, const char *text) {
    target->state = NNPIPE_STATE_CLOSED;
    send_text(target, NNPIPE_ERROR, NNPIPE_FLAG_FATAL, target->number, (uint8_t)code, (uint8_t)(code >> 8), text);
}

void nnpipe_log(struct nnpipe_target *target, uint8_t level, const char *text) {
    if (target->extensions & NNPIPE_LOG_EXTENSION && target->state > NNPIPE_STATE_GREETED &&
        target->state != NNPIPE_STATE_CLOSED)
        send_text(target, NNPIPE_LOG, 0, 0, level, 0, text);
}

int nnpipe_break_off(struct nnpipe_target *target) {
    nnpipe_refuse(target, NNPIPE_CODE_PROTOCOL, target->why);
    return 0;
}
