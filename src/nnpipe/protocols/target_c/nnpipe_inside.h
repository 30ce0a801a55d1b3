/* What the sources of a target share; a program needs only nnpipe_target.h. */
#ifndef NNPIPE_INSIDE_H
#define NNPIPE_INSIDE_H

#include "nnpipe_rules.h"
#include "nnpipe_target.h"

enum { TENSOR_PADDING = 8, DESCRIPTION_HEAD = 40, OFFSET = 8, HANDSHAKE = 32 };

extern const uint8_t nnpipe_zeros[TENSOR_PADDING];

/* Texts of errors, in the target's own memory. */
void nnpipe_say(struct nnpipe_target *target, const char *text);
void nnpipe_say_number(struct nnpipe_target *target, uint64_t number);
void nnpipe_say_anew(struct nnpipe_target *target, const char *text);

/* The bytes after a tensor in a payload, and of a whole payload of tensors. */
uint32_t nnpipe_padding_after(const struct nnpipe_tensor *tensors, uint32_t count, uint32_t number);
uint64_t nnpipe_bytes_of(const struct nnpipe_tensor *tensors, uint32_t count);

void nnpipe_send_head(struct nnpipe_target *target, uint8_t kind, uint8_t flags, uint32_t number, uint32_t length,
                      uint32_t check);
/* Answer with OK, whose payload is in two pieces. */
void nnpipe_ok(struct nnpipe_target *target, const uint8_t *first, uint32_t count, const void *second, uint32_t more);
/* Answer with an ERROR after which the conversation goes on; its text is `why`. */
void nnpipe_error(struct nnpipe_target *target, uint16_t code);
void nnpipe_error_about_size(struct nnpipe_target *target, const char *what, uint64_t bytes, const char *but,
                             uint64_t others, const char *end);
/* Say with `why` that the rules were broken; gives 0. */
int nnpipe_break_off(struct nnpipe_target *target);

/* Answer the request that has come; gives 0 when the conversation is over. */
int nnpipe_answer(struct nnpipe_target *target);

#endif
