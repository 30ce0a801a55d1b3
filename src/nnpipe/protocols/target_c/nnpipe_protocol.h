/* Written by docs/refresh.py. */
#ifndef NNPIPE_PROTOCOL_H
#define NNPIPE_PROTOCOL_H

#include <stdint.h>

struct nnpipe_header {
    uint8_t  magic;             /* 0x6e */
    uint8_t  version;           /* 1 */
    uint8_t  kind;              /* what the frame says */
    uint8_t  flags;             /* bits whose meaning depends on the kind, else 0 */
    uint32_t number;            /* of the request; an answer repeats its request's */
    uint32_t length;            /* bytes of payload */
    uint32_t check_low;         /* lower half of the payload's check */
    uint32_t check_high;        /* upper half of the payload's check */
    uint32_t header_check;      /* CRC-32 of the 20 bytes before */
};

enum nnpipe_kind { NNPIPE_OK = 1, NNPIPE_ERROR = 2, NNPIPE_DATA = 3, NNPIPE_MODEL = 4,
    NNPIPE_PROCESS = 5, NNPIPE_OUTPUT = 6, NNPIPE_STATS = 7, NNPIPE_HELLO = 8, NNPIPE_AUTH = 9,
    NNPIPE_LOG = 10, NNPIPE_INFER = 11 };
enum nnpipe_code { NNPIPE_CODE_PROTOCOL = 1, NNPIPE_CODE_BUSY = 2, NNPIPE_CODE_AUTHENTICATION = 3,
    NNPIPE_CODE_VERSION = 4, NNPIPE_CODE_SKIPPED = 5, NNPIPE_CODE_TIMEOUT = 6, NNPIPE_CODE_STOPPING
    = 7, NNPIPE_CODE_MODEL = 8, NNPIPE_CODE_NATIVE_CODE = 9, NNPIPE_CODE_DAMAGED = 10,
    NNPIPE_CODE_NO_SPACE = 11, NNPIPE_CODE_TENSORS = 12, NNPIPE_CODE_RUNTIME = 13, NNPIPE_CODE_DIED
    = 14, NNPIPE_CODE_MEMORY = 15 };
typedef char nnpipe_header_has_no_gaps[sizeof(struct nnpipe_header) == 24 ? 1 : -1];

enum nnpipe_flag { NNPIPE_FLAG_BEGIN = 0x0, NNPIPE_FLAG_PART = 0x1, NNPIPE_FLAG_END = 0x2,
    NNPIPE_FLAG_STARTED = 0x1, NNPIPE_FLAG_CLOCK = 0x1, NNPIPE_FLAG_FATAL = 0x80 };
enum nnpipe_state { NNPIPE_STATE_NEW, NNPIPE_STATE_GREETED, NNPIPE_STATE_EMPTY,
    NNPIPE_STATE_RECEIVING, NNPIPE_STATE_READY, NNPIPE_STATE_LOADED, NNPIPE_STATE_RUNNING,
    NNPIPE_STATE_DONE, NNPIPE_STATE_CLOSED };
enum nnpipe_extension { NNPIPE_PIPELINING_EXTENSION = 1, NNPIPE_LOG_EXTENSION = 2,
    NNPIPE_INFER_EXTENSION = 4 };
enum { NNPIPE_MAGIC = 0x6e, NNPIPE_VERSION = 1, NNPIPE_HEADER_BYTES = 24, NNPIPE_ROW_BYTES = 40 };

#endif
