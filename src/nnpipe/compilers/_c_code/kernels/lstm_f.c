/* Four gates in the order input, forget, cell, output; output and cell are states that the next run begins with. */
static void nn_lstm_f32(const float *in, const float *weights, const float *recurrent, const float *bias, float *output,
                        float *cell, float *gates, float *out, int32_t batches, int32_t steps, int32_t depth,
                        int32_t units, int32_t next_step, int32_t next_batch, float clip) {
    for (int32_t b = 0; b < batches; b++, output += units, cell += units)
        for (int32_t t = 0; t < steps; t++) {
            const float *x = in + (b * next_batch + t * next_step) * depth;
            for (int32_t g = 0; g < 4 * units; g++) {
                float sum = bias[g];
                for (int32_t i = 0; i < depth; i++) sum += weights[g * depth + i] * x[i];
                for (int32_t i = 0; i < units; i++) sum += recurrent[g * units + i] * output[i];
                gates[g] = sum;
            }
            nn_logistic_f32(gates, gates, 2 * units);
            nn_tanh_f32(gates + 2 * units, gates + 2 * units, units);
            nn_logistic_f32(gates + 3 * units, gates + 3 * units, units);
            for (int32_t i = 0; i < units; i++) {
                float c = gates[units + i] * cell[i] + gates[i] * gates[2 * units + i];
                if (clip > 0) c = nn_clamp_f32(c, -clip, clip);
                cell[i] = c;
            }
            nn_tanh_f32(cell, output, units);
            for (int32_t i = 0; i < units; i++)
                out[(b * next_batch + t * next_step) * units + i] = output[i] *= gates[3 * units + i];
        }
}
