/* Which element of an axis lies at a place beyond its ends: without (1) or with (0) the outermost ones. */
static int32_t nn_mirrored(int32_t at, int32_t length, int32_t without) {
    return at < 0 ? without - 1 - at : at < length ? at : 2 * length - 1 - without - at;
}
