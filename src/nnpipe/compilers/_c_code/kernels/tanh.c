static float nn_tanh(float y) {
    float x = y < 0 ? -y : y, square = x * x, power;
    /* A series where the difference below would lose digits. */
    float found = x < 0.1f ? x * (1 - square * (1.0f / 3 - square * (2.0f / 15 - square * (17.0f / 315)))) : 0;
    if (x >= 0.1f) { power = nn_exp(-2 * x); found = (1 - power) / (1 + power); }
    return y < 0 ? -found : found;
}
