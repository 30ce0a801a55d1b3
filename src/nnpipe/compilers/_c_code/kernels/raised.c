/* A number times a power of two, or the nearest one that there is. */
static int32_t nn_raised(int32_t x, int32_t by) {
    int64_t found = (int64_t)x * ((int64_t)1 << by);
    return found > INT32_MAX ? INT32_MAX : found < INT32_MIN ? INT32_MIN : (int32_t)found;
}
