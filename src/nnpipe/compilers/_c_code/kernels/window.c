typedef struct {
    int32_t batches, in_h, in_w, in_c, out_h, out_w, out_c, filter_h, filter_w, filter_c;
    int32_t stride_h, stride_w, step_h, step_w, pad_h, pad_w; /* steps are dilations */
} nn_window;

/* Where a pixel of the input begins. */
#define NN_PIXEL(w, b, y, x) ((((b) * (w)->in_h + (y)) * (w)->in_w + (x)) * (w)->in_c)
