"""The switches that keep other packages from reporting what is done with them to their makers."""

from collections.abc import MutableMapping

# Most packages read their variable while they are imported, ONNX Runtime when it creates its first session.
SWITCHES = {
    "DO_NOT_TRACK": "true",  # MLflow, Hugging Face Hub and others
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime and its generation library; they send names of models, too
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "NNCF_CI": "1",  # its only effect; without it NNCF reports whenever it quantises
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_ERROR_REPORTING": "false",  # errors of the package itself, sent to its makers
    "NO_ALBUMENTATIONS_UPDATE": "1",  # a look for newer versions
    "ALBUMENTATIONS_NO_TELEMETRY": "1",
}
"""The environment variables, and the values that turn telemetry off."""


def switch_off_telemetry(environment: MutableMapping[str, str]) -> None:
    """Set every switch that the user has not set; processes that are started later inherit them.

    Examples
    --------
    >>> variables = {"RAY_USAGE_STATS_ENABLED": "1"}
    >>> switch_off_telemetry(variables)
    >>> variables["ORT_DISABLE_TELEMETRY"], variables["RAY_USAGE_STATS_ENABLED"]
    ('1', '1')
    """
    for name, value in SWITCHES.items():
        environment.setdefault(name, value)
