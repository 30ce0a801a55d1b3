"""What loses accuracy is told with the operations that compute it and the cause that was seen."""

from __future__ import annotations

from nnpipe.analysis.channel_errors import TensorError
from nnpipe.analysis.suspect_operations import Level, Suspect
from nnpipe.workflows.explanation.error_tables import describe_faults
from nnpipe.workflows.explanation.layer_errors import LayerErrors


def error(name: str, median: float, whole: float) -> TensorError:
    return TensorError(
        f"{name}_q",
        f"{name}_t",
        name,
        "Relu",
        median,
        median - 5,
        whole,
        (median,),
        (f"{name}_conv",),
    )


def suspect(name: str, told: str) -> Suspect:
    level = Level(f"{name}_t", name, "Relu", "", f"{name}_t", 5.0, 1.0, 5.0, 3.0)
    return Suspect(f"{name}_conv", level, (f"{name}_conv",), (), told)


SOUND = [error(f"sound{number}", 45.0, 46.0) for number in range(5)]


def told(lost: TensorError, *suspects: Suspect) -> tuple[str, ...]:
    return describe_faults(LayerErrors((*SOUND, lost), suspects, 8))


def test_the_operations_with_weights_and_the_seen_cause_are_told_once() -> None:
    (line,) = told(error("a", 5.0, 6.0), suspect("a", "values are cut off at 3"))
    assert (
        line
        == "a_q (a_conv, a of the source): half of its channels have 5.0 dB or less; values are cut off at 3"
    )


def test_a_range_that_few_channels_take_is_seen_in_the_ratio_of_all_values() -> None:
    (line,) = told(error("a", 5.0, 38.0), suspect("a", "noise"))
    assert line.endswith("5.0 dB or less; few large channels take all its range")
    (line,) = told(error("a", 5.0, 6.0))
    assert line.endswith("half of its channels have 5.0 dB or less")


def test_suspects_beside_lost_tensors_follow_and_a_sound_model_is_not_accused() -> None:
    assert (
        told(error("a", 5.0, 6.0), suspect("b", "twice the scale"))[1] == "b_conv: twice the scale"
    )
    assert told(error("a", 44.0, 45.0)) == ()
