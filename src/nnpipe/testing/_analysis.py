"""Analysis methods in the contract of model wrappers: weights, graphs, profiles and intermediate
values.
"""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

import numpy as np
import pytest

from nnpipe.core.errors import ConfigError, NotSupported, SpecMismatch
from nnpipe.core.graph import Graph, Profile, Selector
from nnpipe.core.live_model import LiveModel
from nnpipe.core.tensors import Batch
from nnpipe.testing.session import assert_one_line


def skip_unless_offered(model: LiveModel, *methods: str) -> None:
    """Skip a test unless the wrapper offers these optional methods."""
    for method in methods:
        if not model.wrapper.offers(method):
            pytest.skip(f"{type(model.wrapper).__name__} does not offer {method}")


def open_twin(model: LiveModel) -> LiveModel:
    """Return a second model, of a wrapper with equal arguments."""
    return type(model.wrapper).from_json(model.wrapper.to_json()).open()


def run_batch(model: LiveModel, batch: Batch) -> dict[str, np.ndarray]:
    """Return the outputs of a batch, run in a new session, without those that vary from run to
    run.
    """
    with model.session() as session:
        found = session.infer(batch)
        return {name: array for name, array in found.items() if name not in session.varying}


def change_weights(model: LiveModel) -> None:
    """Change the weights of a new model; skip the test if the wrapper offers no method for this."""
    if not try_change_weights(model):
        pytest.skip(f"{type(model.wrapper).__name__} offers no way to change its weights")


def try_change_weights(model: LiveModel) -> bool:
    """Change the weights by any method that the wrapper offers; return whether there is one."""
    if model.wrapper.offers("get_weights", "set_weights"):
        weights = model.get_weights()
        real = {name: array for name, array in weights.items() if array.dtype.kind == "f"}
        # Positive weights stay positive: they may be variances.
        model.set_weights({name: array * array.dtype.type(1.25) for name, array in real.items()})
        return True
    if model.wrapper.offers("run_training"):
        model.run_training(1)
        return True
    return False


def assert_batches_equal(found: Batch, expected: Batch) -> None:
    """Fail unless both hold bit-identical arrays."""
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name, strict=True)


def find_reachable(held: object) -> set[int]:
    """Return the ids of all objects reachable from one, except through modules, classes and
    functions.
    """
    found, pending = set(), [held]
    while pending:
        each = pending.pop()
        if id(each) not in found and not isinstance(each, (ModuleType, type, FunctionType)):
            found.add(id(each))
            pending += gc.get_referents(each)
    return found


class AnalysisContract:
    """What the analysis methods must do, if a wrapper offers them.

    Attributes
    ----------
    intermediate_rtol, intermediate_atol
        Tolerances between intermediate values and the session's outputs of the
        same tensor.
    """

    intermediate_rtol: float = 1e-5
    intermediate_atol: float = 1e-6

    # -- weights --------------------------------------------------------------------------------

    def test_weights_have_names_that_stay(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_weights")
        weights = model.get_weights()
        assert weights
        assert list(model.get_weights()) == list(weights)
        assert list(open_twin(model).get_weights()) == list(weights)

    def test_weights_can_be_had_by_name(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_weights")
        weights = model.get_weights()
        some = list(weights)[1::2]
        assert_batches_equal(model.get_weights(some), {name: weights[name] for name in some})
        assert model.get_weights([]) == {}

    def test_weights_given_are_copies(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_weights")
        kept = {name: array.copy() for name, array in model.get_weights().items()}
        for array in model.get_weights().values():
            array[...] = array + array.dtype.type(1)
        assert_batches_equal(model.get_weights(), kept)

    def test_asking_for_an_unknown_weight_names_it(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_weights")
        with pytest.raises(ConfigError, match=r"no\.such\.weight") as caught:
            model.get_weights([*list(model.get_weights())[:1], "no.such.weight"])
        assert_one_line(caught.value)

    def test_weights_set_are_the_weights_used(self, model: LiveModel, batch: Batch) -> None:
        skip_unless_offered(model, "get_weights", "set_weights")
        change_weights(model)
        other = open_twin(model)
        other.set_weights(model.get_weights())
        assert_batches_equal(other.get_weights(), model.get_weights())
        assert_batches_equal(run_batch(other, batch), run_batch(model, batch))

    def test_weights_set_are_copied(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_weights", "set_weights")
        mine = model.get_weights()
        model.set_weights(mine)
        kept = {name: array.copy() for name, array in mine.items()}
        for array in mine.values():
            array[...] = array + array.dtype.type(1)
        assert_batches_equal(model.get_weights(), kept)

    def test_setting_some_weights_leaves_the_rest_alone(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_weights", "set_weights")
        change_weights(model)
        before = model.get_weights()
        for name, array in before.items():
            changed = array + array.dtype.type(1)
            model.set_weights({name: changed})
            assert_batches_equal(model.get_weights(), before | {name: changed})
            model.set_weights({name: array})

    def test_an_unknown_weight_is_refused_before_anything_changes(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_weights", "set_weights")
        before = model.get_weights()
        first = next(iter(before))
        with pytest.raises(ConfigError, match=r"no\.such\.weight") as caught:
            model.set_weights(
                {
                    first: before[first] + before[first].dtype.type(1),
                    "no.such.weight": before[first],
                }
            )
        assert_one_line(caught.value)
        assert_batches_equal(model.get_weights(), before)

    def test_a_wrong_shape_is_refused_before_anything_changes(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_weights", "set_weights")
        before = model.get_weights()
        changed = {name: array + array.dtype.type(1) for name, array in before.items()}
        for name in before:
            wrong = {other: array for other, array in changed.items() if other != name}
            # one more axis, and a different number of elements
            wrong[name] = np.stack([before[name]] * 3)
            with pytest.raises(SpecMismatch) as caught:
                model.set_weights(wrong)
            assert name in str(caught.value)
            assert_one_line(caught.value)
            assert_batches_equal(model.get_weights(), before)

    # -- graphs ---------------------------------------------------------------------------------

    def test_the_inference_graph_is_whole_and_in_order(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_inference_graph")
        graph = model.get_inference_graph()
        assert_well_formed(graph)
        assert len(graph.inputs) == len(model.io.inputs)
        assert len(graph.outputs) == len(model.io.outputs)
        assert graph.native is not None

    def test_the_inference_graph_is_the_same_at_every_call(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_inference_graph")
        first = model.get_inference_graph()
        for again in (model.get_inference_graph(), open_twin(model).get_inference_graph()):
            assert again == first

    def test_the_training_graph_is_whole_or_its_absence_explained(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_training_graph")
        try:
            graph = model.get_training_graph()
        except NotSupported as error:
            assert_one_line(error)
        else:
            assert_well_formed(graph)

    # -- intermediate values ----------------------------------------------------------------------

    def test_intermediates_include_the_outputs_by_each_selector(
        self, model: LiveModel, batch: Batch
    ) -> None:
        skip_unless_offered(model, "get_intermediates", "get_inference_graph")
        graph = model.get_inference_graph()
        producers = {
            name: operation for operation in graph.operations for name in operation.outputs
        }
        outputs = run_batch(model, batch)
        for spec, tensor in zip(model.io.outputs, graph.outputs, strict=True):
            chosen = model.get_intermediates(Selector(tensor=tensor), batch)
            assert list(chosen) == [tensor]
            selectors = [Selector(tensor=tensor), Selector(operation=producers[tensor].kind)]
            if producers[tensor].layer:
                selectors.append(Selector(layer=producers[tensor].layer))
            for selector in selectors:
                found = model.get_intermediates(selector, batch)
                np.testing.assert_allclose(
                    found[tensor],
                    outputs[spec.name],
                    self.intermediate_rtol,
                    self.intermediate_atol,
                    err_msg=tensor,
                )

    def test_intermediates_are_what_their_selector_chooses(
        self, model: LiveModel, batch: Batch
    ) -> None:
        skip_unless_offered(model, "get_intermediates", "get_inference_graph")
        graph = model.get_inference_graph()
        operation = graph.operations[len(graph.operations) // 2]
        selectors = [
            Selector(tensor="*"),
            Selector(operation=operation.kind),
            Selector(layer=operation.layer or "*"),
        ]
        for selector in selectors:
            chosen = {t for op in graph.operations for t in op.outputs if selector.matches(op, t)}
            found = model.get_intermediates(selector, batch)
            assert found.keys() == chosen
            for name, array in found.items():
                graph.tensors[name].check(array)

    def test_intermediates_without_inputs_are_the_same_every_time(self, model: LiveModel) -> None:
        skip_unless_offered(model, "get_intermediates")
        first = model.get_intermediates(Selector(tensor="*"))
        assert first
        assert_batches_equal(model.get_intermediates(Selector(tensor="*")), first)

    def test_operations_go_on_with_what_is_given(self, model: LiveModel, batch: Batch) -> None:
        skip_unless_offered(model, "get_intermediates", "get_inference_graph")
        everything, graph = Selector(tensor="*"), model.get_inference_graph()
        plain = model.get_intermediates(everything, batch)
        computed = {
            name: array
            for name, array in plain.items()
            if array.dtype.kind == "f" and array.size > 1
        }
        again = model.get_intermediates(everything, batch, computed)
        for name, array in plain.items():
            np.testing.assert_allclose(
                again[name], array, self.intermediate_rtol, self.intermediate_atol, err_msg=name
            )
        for operation in reversed(graph.operations):
            taken = [
                name for name in operation.inputs if name in computed and np.any(computed[name])
            ]
            if not (taken and any(name in computed for name in operation.outputs)):
                continue
            found = model.get_intermediates(everything, batch, {taken[0]: -3 * computed[taken[0]]})
            assert found.keys() == plain.keys()
            np.testing.assert_allclose(
                found[taken[0]],
                plain[taken[0]],
                self.intermediate_rtol,
                self.intermediate_atol,
                err_msg=taken[0],
            )
            assert any(not np.array_equal(found[name], plain[name]) for name in operation.outputs)
            return

    def test_choosing_nothing_is_an_error_of_one_line(self, model: LiveModel, batch: Batch) -> None:
        skip_unless_offered(model, "get_intermediates")
        for selector in (
            Selector(tensor="no_such"),
            Selector(layer="no_such"),
            Selector(operation="no_such"),
        ):
            with pytest.raises(ConfigError, match="no_such") as caught:
                model.get_intermediates(selector, batch)
            assert_one_line(caught.value)

    # -- profiles -------------------------------------------------------------------------------

    def test_the_profile_of_an_inference_covers_its_graph(self, model: LiveModel) -> None:
        skip_unless_offered(model, "profile_inference", "get_inference_graph")
        kinds = {
            operation.name: operation.kind for operation in model.get_inference_graph().operations
        }
        profile = model.profile_inference(2)
        assert_sound(profile, 2)
        if not profile.rewritten:
            assert {timing.operation: timing.kind for timing in profile.timings} == kinds
        assert all(timing.calls == 2 for timing in profile.timings)

    def test_the_profile_of_a_training_is_sound(self, model: LiveModel) -> None:
        skip_unless_offered(model, "profile_training")
        assert_sound(model.profile_training(2), 2)

    def test_profiling_leaves_the_model_as_it_was(self, model: LiveModel, batch: Batch) -> None:
        skip_unless_offered(model, "profile_inference")
        before = run_batch(model, batch)
        model.profile_inference(1)
        assert_batches_equal(run_batch(model, batch), before)
        skip_unless_offered(model, "profile_training")
        model.profile_training(1)
        assert_batches_equal(run_batch(model, batch), before)


def assert_well_formed(graph: Graph) -> None:
    """Fail unless names are unique, every tensor is described, and no tensor is used before it
    is computed.
    """
    names = [operation.name for operation in graph.operations]
    assert names
    assert len(set(names)) == len(names)
    produced = [tensor for operation in graph.operations for tensor in operation.outputs]
    assert len(set(produced)) == len(produced), "a tensor is computed twice"
    assert not set(produced) & set(graph.inputs), "an input is computed"
    known = set(graph.tensors) - set(produced)  # inputs and weights
    for operation in graph.operations:
        assert operation.kind, operation.name
        assert operation.native is not None, operation.name
        for tensor in operation.inputs:
            assert tensor in known, f"{operation.name} uses {tensor} before it is there"
        assert set(operation.outputs) <= set(graph.tensors), operation.name
        known |= set(operation.outputs)
    assert set(graph.inputs) <= known
    assert set(graph.outputs) <= known
    for name, spec in graph.tensors.items():
        assert spec.name == name


def assert_sound(profile: Profile, steps: int) -> None:
    """Fail unless a profile counts its steps, names each operation once, and has possible times."""
    assert profile.steps == steps
    assert profile.wall_ns > 0
    operations = [timing.operation for timing in profile.timings]
    assert operations
    assert len(set(operations)) == len(operations)
    assert all(
        timing.kind and timing.calls > 0 and timing.total_ns >= 0 for timing in profile.timings
    )
    assert any(timing.total_ns > 0 for timing in profile.timings)
