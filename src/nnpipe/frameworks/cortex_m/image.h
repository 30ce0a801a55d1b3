/* The beginning of a model's file for Cortex-M.  The file is copied to its address as it is, and called there. */
#ifndef NNPIPE_IMAGE_H
#define NNPIPE_IMAGE_H

#include <stdint.h>

struct nnpipe_image_tensor {
    uint32_t bytes;
    uint8_t type; /* 1 float32, 2 int8, 3 uint8, 4 int16, 5 int32, 6 int64, 7 bool, 8 uint16, 9 uint32 */
    uint8_t rank;
    uint16_t number; /* by which `input` or `output` know it */
    uint32_t lengths[6];
};

struct nnpipe_image {
    uint8_t magic[6]; /* "nncode" */
    uint16_t version; /* 2 */
    uint32_t core;    /* 3, 4, 7 or 55 */
    uint32_t address; /* where the file must lie */
    uint32_t size;    /* bytes of the file */
    uint32_t check;   /* CRC-32 of the file, with this field as 0 */
    uint32_t zeros, zero_bytes; /* memory behind the file that must begin with zeros; the arena lies there */
    uint32_t flash_bytes;       /* code, constants, and initial values */
    uint32_t data_bytes;        /* memory that has initial values, part of the file */
    uint32_t stack_bytes;       /* the deepest that `run` is predicted to need */
    void *(*input)(int32_t);
    const void *(*output)(int32_t);
    void (*run)(void);
    void (*reset)(void); /* forgets what earlier runs have left */
    uint32_t inputs, outputs;
    struct nnpipe_image_tensor tensors[]; /* inputs, then outputs */
};

#endif
