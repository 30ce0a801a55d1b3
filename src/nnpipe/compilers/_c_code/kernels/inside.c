/* The range of filter rows or columns that lie inside of the input. */
static int32_t nn_from(int32_t start, int32_t step) { return start < 0 ? (-start + step - 1) / step : 0; }
static int32_t nn_to(int32_t start, int32_t step, int32_t length, int32_t filter) {
    int32_t most = start >= length ? 0 : (length - start + step - 1) / step;
    return most < filter ? most : filter;
}
