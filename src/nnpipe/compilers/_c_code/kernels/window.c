typedef struct {
    int32_t batches, in_h, in_w, in_c, out_h, out_w, out_c, filter_h, filter_w, filter_c;
    int32_t stride_h, stride_w, step_h, step_w, pad_h, pad_w; /* steps are dilations */
} nn_window;

/* Where a pixel of the input begins. */
#define NN_PIXEL(w, b, y, x) ((((b) * (w)->in_h + (y)) * (w)->in_w + (x)) * (w)->in_c)

/* The range of filter rows or columns that lie inside of the input. */
static int32_t nn_from(int32_t start, int32_t step) { return start < 0 ? (-start + step - 1) / step : 0; }
static int32_t nn_to(int32_t start, int32_t step, int32_t length, int32_t filter) {
    int32_t most = start >= length ? 0 : (length - start + step - 1) / step;
    return most < filter ? most : filter;
}
