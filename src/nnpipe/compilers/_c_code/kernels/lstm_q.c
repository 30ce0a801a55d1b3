/* Four gates in the order input, forget, cell, output, with 12 bits behind the point; output and cell are states that
 * the next run begins with.  Each gate has a factor of its input and one of the output before, which is stored less its
 * zero point: memory begins with zeros. */
typedef struct {
    int32_t batches, steps, depth, units, next_step, next_batch, in_zero, state_zero;
    int32_t multiplier, shift, out_zero, cell_bits, clip, factors[4][4];
} nn_lstm;

static void nn_lstm_s8(const int8_t *in, const int8_t *weights, const int8_t *recurrent, const int32_t *bias,
                       int8_t *output, int16_t *cell, int16_t *gates, int8_t *out, const nn_lstm *s) {
    int32_t units = s->units, depth = s->depth, zero = s->state_zero;
    for (int32_t b = 0; b < s->batches; b++, output += units, cell += units)
        for (int32_t t = 0; t < s->steps; t++) {
            int32_t place = b * s->next_batch + t * s->next_step;
            for (int32_t g = 0; g < 4 * units; g++) {
                const int32_t *f = s->factors[g / units];
                int32_t sum = bias[g], before = 0;
                for (int32_t i = 0; i < depth; i++)
                    sum += weights[g * depth + i] * (in[place * depth + i] - s->in_zero);
                for (int32_t i = 0; i < units; i++)
                    before += recurrent[g * units + i] * ((int8_t)(output[i] + zero) - zero);
                sum = nn_clamp16(nn_rescale(sum, f[0], f[1]));
                sum = nn_clamp16(sum + nn_clamp(nn_rescale(before, f[2], f[3]), -65536, 65536));
                gates[g] = (int16_t)(g / units == 2 ? nn_tanh16(sum, 3) : nn_logistic16(sum));
            }
            for (int32_t i = 0; i < units; i++) {
                int32_t kept = nn_rounded_shift(gates[units + i] * cell[i], 15);
                int32_t made = nn_rounded_shift(gates[i] * gates[2 * units + i], 15 + s->cell_bits), found;
                found = nn_clamp16(kept + made);
                if (s->clip) found = nn_clamp(found, -s->clip, s->clip);
                cell[i] = (int16_t)found;
                found = nn_rescale(gates[3 * units + i] * nn_tanh16(found, s->cell_bits), s->multiplier, s->shift);
                out[place * units + i] = (int8_t)nn_clamp(found + s->out_zero, -128, 127);
                output[i] = (int8_t)(out[place * units + i] - zero);
            }
        }
}
