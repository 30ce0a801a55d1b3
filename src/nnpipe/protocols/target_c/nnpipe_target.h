/* The target's side of a conversation in nnpipe's wire protocol, without I/O, memory of its own, or a library.
 *
 * A program gives functions (struct nnpipe_owner) and hands over the bytes of its line:
 *
 *     nnpipe_begin(&target, &owner, context, nonce);
 *     do {
 *         uint8_t *to;
 *         uint32_t most = nnpipe_target_wanted(&target, &to);
 *         count = read(to, most);
 *     } while (count && nnpipe_heard(&target, count));
 *
 * Requests are answered by `write` while nnpipe_heard runs.  What a request may be, and how large, is checked before its
 * payload is read; tensors and parts of models go straight to their places.  To begin anew, call nnpipe_begin again. */
#ifndef NNPIPE_TARGET_H
#define NNPIPE_TARGET_H

#include "nnpipe_frames.h"

struct nnpipe_tensor {
    uint8_t *place;
    uint32_t bytes;
};

struct nnpipe_model {
    const struct nnpipe_tensor *inputs, *outputs; /* in the order of the model's description, of fixed shapes */
    uint32_t input_count, output_count;
    uint8_t *kept;     /* room for a payload of inputs, or 0: then a run uses them up, and another run needs new ones */
    void (*reset)(void); /* makes it forget what earlier runs have left; or 0 */
    const char *about; /* {"io":...,"about":...} in JSON for the answer to MODEL end, or 0 */
};

enum nnpipe_phase { NNPIPE_WAITING, NNPIPE_LOADING, NNPIPE_RUNNING };

/* Functions that give a code (enum nnpipe_code) give 0 for success; they may set the target's `why` to a text. */
struct nnpipe_owner {
    uint32_t largest;        /* most bytes of inputs taken */
    uint32_t part;           /* most bytes of a model's file in one frame, a multiple of 8 */
    uint32_t extensions;     /* enum nnpipe_extension */
    uint8_t counter;         /* what `count` counts: 0 time, 1 cycles, 2 instructions */
    uint64_t rate;           /* counts in a second, or 0 */
    const uint8_t *token;    /* that a host must know, or 0 */
    uint32_t token_bytes;
    /* The proof of a token: nnpipe_prove (nnpipe_sha256.h), or 0 if there is no token. */
    void (*prove)(const uint8_t *token, uint32_t bytes, const char *role, const uint8_t said[64], uint8_t proof[32]);

    void (*write)(void *context, const uint8_t *bytes, uint32_t count);
    uint64_t (*count)(void *context);
    /* A model of this size and hash is offered; `had`: how many bytes of it, from its beginning, are here already. */
    uint16_t (*offer)(void *context, uint64_t size, const uint8_t sha256[32], uint64_t *had);
    /* Where a part goes, or 0 to refuse it; may be 0 if all models are here already. */
    uint8_t *(*place)(void *context, uint64_t offset, uint32_t count);
    uint16_t (*take)(void *context, uint64_t offset, uint32_t count); /* the part is there, and undamaged */
    uint16_t (*load)(void *context, uint64_t *counts, const struct nnpipe_model **model);
    /* `stamps` are the counts when it was started and stopped: the first is set; the second, if 0, is set afterwards. */
    uint16_t (*run)(void *context, uint64_t stamps[2]);
    uint32_t (*rows)(void *context, const uint8_t **rows);     /* bytes of rows for STATS, or 0 instead of a function */
    void (*phase)(void *context, int phase, uint32_t request); /* what begins (enum nnpipe_phase), or 0 */
    uint16_t (*greet)(void *context); /* whether a host may come in: a code refuses it; or 0 */
};

struct nnpipe_rule;

struct nnpipe_target {
    const struct nnpipe_owner *owner;
    void *context;
    const struct nnpipe_model *model; /* 0 while none is loaded */
    const char *why;                  /* the text of the next ERROR, set by the owner */
    struct nnpipe_receiver in;
    const struct nnpipe_rule *rule; /* of the request whose header has come */
    uint32_t number;                /* of the last request */
    uint32_t extensions, sendable;  /* what was agreed on */
    uint32_t tensor;                /* twice the number of the input that comes next, or 1 more for the zeros after it */
    uint64_t inferences, load;
    uint8_t state, skipped, failed, refused, used_up;
    uint8_t said[64];  /* the payloads of HELLO and its OK */
    uint8_t small[40]; /* the beginning of a payload that goes nowhere else */
    char text[96];
};

/* Begin a conversation; the nonce is 16 random bytes, new in every conversation. */
void nnpipe_begin(struct nnpipe_target *target, const struct nnpipe_owner *owner, void *context,
                  const uint8_t nonce[16]);

/* Where the next bytes go, and how many at most; never 0. */
uint32_t nnpipe_target_wanted(struct nnpipe_target *target, uint8_t **to);

/* So many bytes have come; gives 0 when the conversation is over, and the line is to be closed. */
int nnpipe_heard(struct nnpipe_target *target, uint32_t count);

/* End the conversation with an ERROR; the text may be 0. */
void nnpipe_refuse(struct nnpipe_target *target, uint16_t code, const char *text);

/* Send a line of the log (level: 10 debug, 20 info, 30 warning, 40 error), if the host agreed to take them. */
void nnpipe_log(struct nnpipe_target *target, uint8_t level, const char *text);

#endif
