"""Recurrent layers: LSTM, GRU and the simple one, of several layers and in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnpipe.compilers._torch_tf.values import Value, require_constant

_Step = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
_UNROLLED = 128
"""Longest sequence whose steps are written one by one, which is faster than a loop and can be
quantised.
"""


def _apply_lstm(
    x: Value,
    states: Sequence[Value],
    weights: Sequence[Value],
    biased: bool,
    layers: int,
    dropout: float,
    training: bool,
    both: bool,
    batch_first: bool,
) -> tuple[Value, Value, Value]:
    import tensorflow as tf

    def make_step(w: Sequence[Any]) -> tuple[Any, _Step]:
        def advance(given: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            hidden, cell = state
            gates = given + tf.matmul(hidden, w[1].T)
            enter, forget, new, leave = tf.split(gates, 4, -1)
            cell = tf.sigmoid(forget) * cell + tf.sigmoid(enter) * tf.tanh(new)
            return tf.sigmoid(leave) * tf.tanh(cell), cell

        return (w[2] + w[3] if biased else None), advance

    found, (hidden, cells) = _run_layers(
        x, states, weights, 4 if biased else 2, layers, both, batch_first, make_step
    )
    return found, hidden, cells


def _apply_gru(
    x: Value,
    state: Value,
    weights: Sequence[Value],
    biased: bool,
    layers: int,
    dropout: float,
    training: bool,
    both: bool,
    batch_first: bool,
) -> tuple[Value, Value]:
    import tensorflow as tf

    def make_step(w: Sequence[Any]) -> tuple[Any, _Step]:
        def advance(given: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
            (hidden,) = state
            own = tf.matmul(hidden, w[1].T)
            own = own + w[3] if biased else own
            reset, update, new = tf.split(given, 3, -1)
            own_reset, own_update, own_new = tf.split(own, 3, -1)
            update = tf.sigmoid(update + own_update)
            new = tf.tanh(new + tf.sigmoid(reset + own_reset) * own_new)
            return (new + update * (hidden - new),)

        return (w[2] if biased else None), advance

    found, (hidden,) = _run_layers(
        x, [state], weights, 4 if biased else 2, layers, both, batch_first, make_step
    )
    return found, hidden


def _make_simple_rnn(function: str) -> Callable[..., Any]:
    def apply(
        x: Value,
        state: Value,
        weights: Sequence[Value],
        biased: bool,
        layers: int,
        dropout: float,
        training: bool,
        both: bool,
        batch_first: bool,
    ) -> tuple[Value, Value]:
        import tensorflow as tf

        def make_step(w: Sequence[Any]) -> tuple[Any, _Step]:
            def advance(given: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
                return (getattr(tf.nn, function)(given + tf.matmul(state[0], w[1].T)),)

            return (w[2] + w[3] if biased else None), advance

        found, (hidden,) = _run_layers(
            x, [state], weights, 4 if biased else 2, layers, both, batch_first, make_step
        )
        return found, hidden

    return apply


def _run_layers(
    x: Value,
    states: Sequence[Value],
    weights: Sequence[Value],
    of_each: int,
    layers: int,
    both: bool,
    batch_first: bool,
    step: Callable[[Sequence[Any]], tuple[Any, _Step]],
) -> tuple[Value, list[Value]]:
    """Return the outputs of the last layer, and the last states of all layers."""
    import tensorflow as tf

    held = x.first()
    plain = x.rank == 2
    if plain:
        held = tf.expand_dims(held, 0 if batch_first else 1)
    started = [tf.convert_to_tensor(state.first()) for state in states]
    started = [tf.expand_dims(state, 1) for state in started] if plain else started
    axis = 1 if batch_first else 0
    ends: list[list[Any]] = [[] for _ in states]
    arrays = [require_constant(weight, "a recurrent layer") for weight in weights]
    directions = 2 if both else 1
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            w = arrays[place * of_each : (place + 1) * of_each]
            bias, advance = step(w)
            # The inputs of all steps at once, as one product of matrices.
            given = tf.tensordot(held, w[0], [[-1], [1]])
            given = given if bias is None else given + bias
            beginning = tuple(state[place] for state in started)
            output, last = _run(given, beginning, advance, axis, direction == 1)
            outputs.append(output)
            for end, state in zip(ends, last, strict=True):
                end.append(state)
        held = outputs[0] if len(outputs) == 1 else tf.concat(outputs, -1)
    last_states = [tf.stack(end) for end in ends]
    if plain:
        held = tf.squeeze(held, 0 if batch_first else 1)
        last_states = [tf.squeeze(state, 1) for state in last_states]
    return Value(held), [Value(state) for state in last_states]


def _run(
    given: Any, state: tuple[Any, ...], advance: _Step, axis: int, backwards: bool
) -> tuple[Any, tuple[Any, ...]]:
    """Run the steps over an axis; return the hidden states of all steps, and the last state."""
    import tensorflow as tf

    length = given.shape[axis]
    if length is not None and length <= _UNROLLED:
        found = []
        steps = tf.unstack(given, axis=axis)
        for now in reversed(steps) if backwards else steps:
            state = advance(now, state)
            found.append(state[0])
        return tf.stack(found[::-1] if backwards else found, axis), state
    return _run_loop(given, state, advance, axis, backwards)


def _run_loop(
    given: Any, state: tuple[Any, ...], advance: _Step, axis: int, backwards: bool
) -> tuple[Any, tuple[Any, ...]]:
    import tensorflow as tf

    order = [1, 0, 2]
    steps = tf.transpose(given, order) if axis else given
    steps = tf.reverse(steps, [0]) if backwards else steps
    count = tf.shape(steps)[0]
    outputs = tf.TensorArray(tf.float32, size=count, element_shape=state[0].shape)

    def body(at: Any, outputs: Any, *state: Any) -> Any:
        new = advance(steps[at], state)
        return (at + 1, outputs.write(at, new[0]), *new)

    _, outputs, *last = tf.while_loop(
        lambda at, *_: at < count, body, (tf.constant(0), outputs, *state)
    )
    held = outputs.stack()
    held = tf.reverse(held, [0]) if backwards else held
    return (tf.transpose(held, order) if axis else held), tuple(last)


def build_operators() -> Mapping[str, Callable[..., Any]]:
    """Return the operators by their names in PyTorch; packed sequences are others, and not among
    them.
    """
    return {
        "lstm.input": _apply_lstm,
        "gru.input": _apply_gru,
        "rnn_tanh.input": _make_simple_rnn("tanh"),
        "rnn_relu.input": _make_simple_rnn("relu"),
    }
