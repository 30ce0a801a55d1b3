"""The switches that keep other packages from reporting what is done with them to their makers."""

# Nothing is imported at run time: ``import nnpipe`` imports this module, and is to cost nothing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

# Most packages read their variable while they are imported, ONNX Runtime when it creates its first
# session.
SWITCHES = {
    "DO_NOT_TRACK": "true",  # MLflow, Hugging Face Hub and others
    # ONNX Runtime and its generation library; they send names of models, too
    "ORT_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "NNCF_CI": "1",  # its only effect; without it NNCF reports whenever it quantises
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_ERROR_REPORTING": "false",  # errors of the package itself, sent to its makers
    "NO_ALBUMENTATIONS_UPDATE": "1",  # a look for newer versions
    "ALBUMENTATIONS_NO_TELEMETRY": "1",
}
"""The environment variables, and the values that turn telemetry off."""

CLIENTS = ("openvino_telemetry",)
"""Packages that do nothing but report, and have no switch; those that use them do without them if
they are missing.

OpenVINO reports each time that it is imported.
"""


def switch_off_telemetry(
    environment: "MutableMapping[str, str]", modules: "MutableMapping[str, Any]"
) -> None:
    """Set every switch that the user has not set, and let clients that are not imported yet be
    missing.

    Parameters
    ----------
    environment
        The environment variables; processes that are started later inherit them.
    modules
        The imported modules by name, ``sys.modules``; an import of ``None`` fails.

    Examples
    --------
    >>> variables = {"RAY_USAGE_STATS_ENABLED": "1"}
    >>> switch_off_telemetry(variables, {})
    >>> variables["ORT_DISABLE_TELEMETRY"], variables["RAY_USAGE_STATS_ENABLED"]
    ('1', '1')
    """
    for name, value in SWITCHES.items():
        environment.setdefault(name, value)
    for name in CLIENTS:
        modules.setdefault(name, None)
