/* The models that are linked with a server; the table is written when it is built. */
#ifndef NNPIPE_SERVER_MODELS_H
#define NNPIPE_SERVER_MODELS_H

#include "nnpipe_target.h"

struct nnpipe_linked_model {
    const char *name;
    uint8_t sha256[32]; /* of the C source that a host offers */
    uint64_t size;
    const char *io; /* the tensors in JSON */
    void *(*input)(int32_t);
    const void *(*output)(int32_t);
    void (*run)(void);
    void (*reset)(void);
    uint8_t *const *arena; /* zeros in it mean that nothing has run yet */
    const uint32_t *arena_bytes;
    uint32_t input_count, output_count;
    const uint32_t *sizes; /* bytes of the inputs, then of the outputs */
};

extern const struct nnpipe_linked_model nnpipe_models[];
extern const uint32_t nnpipe_model_count;
extern struct nnpipe_tensor nnpipe_places[]; /* room for the tensors of each */
extern uint8_t nnpipe_kept_inputs[]; /* room for the inputs of each */
extern const uint32_t nnpipe_largest; /* its size */

#endif
