from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from nnpipe.measuring.counters import GPUs
from nnpipe.measuring.host import read_host_facts
from nnpipe.measuring.resource_sampler import UsageSampler


class NVMLError(Exception):
    pass


def refuse(*_: Any) -> Any:
    raise NVMLError("not supported")


def library(count: int = 2, **changes: Callable[..., Any]) -> types.ModuleType:
    """A stand-in for ``nvidia-ml-py`` on a machine with GPUs: the second one is busier."""
    module = types.ModuleType("pynvml")
    calls: list[str] = []
    functions: dict[str, Any] = {
        "NVMLError": NVMLError,
        "calls": calls,
        "nvmlInit": lambda: calls.append("init"),
        "nvmlShutdown": lambda: calls.append("shutdown"),
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUtilizationRates": lambda handle: types.SimpleNamespace(gpu=10 + handle * 40),
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(
            used=1000 + handle, total=5000
        ),
        "nvmlDeviceGetName": lambda handle: b"H200" if handle else "A100",
        "nvmlSystemGetDriverVersion": lambda: "550.1",
    }
    vars(module).update(functions | changes)
    return module


def test_load_is_that_of_the_busiest_and_memory_that_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = library()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with GPUs() as gpus:
        assert gpus.columns == ("gpu_percent", "gpu_bytes")
        assert gpus.read() == (50.0, 2001.0)
    assert module.calls == ["init", "shutdown"]


def test_the_sampler_records_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    with UsageSampler(10.0) as sampler, sampler.record():
        time.sleep(0.001)
    assert sampler.series()["gpu_percent"].tolist() == [50.0]
    assert sampler.series()["gpu_bytes"].tolist() == [2001]


def test_the_host_facts_name_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    assert read_host_facts()["gpus"] == [
        {"name": "A100", "memory_bytes": 5000, "driver": "550.1"},
        {"name": "H200", "memory_bytes": 5000, "driver": "550.1"},
    ]


@pytest.mark.parametrize(
    "module",
    [
        None,  # an import of it fails
        library(nvmlInit=refuse),
        library(count=0),
        library(nvmlDeviceGetCount=refuse),
        library(nvmlDeviceGetUtilizationRates=refuse, nvmlDeviceGetMemoryInfo=refuse),
    ],
    ids=["no library", "no driver", "no GPU", "no count", "no figures"],
)
def test_where_nothing_can_be_read_nothing_is_recorded(
    module: types.ModuleType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with GPUs() as gpus:
        assert gpus.columns == ()
        assert gpus.read() == ()
    with UsageSampler(10.0) as sampler, sampler.record():
        time.sleep(0.001)
    assert not {"gpu_percent", "gpu_bytes"} & sampler.series().columns.keys()


def test_a_partitioned_gpu_shows_its_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules,
        "pynvml",
        library(nvmlDeviceGetUtilizationRates=refuse, nvmlDeviceGetName=refuse),
    )
    with GPUs() as gpus:
        assert gpus.columns == ("gpu_bytes",)
        assert gpus.get_facts()[0] == {"memory_bytes": 5000, "driver": "550.1"}


def test_the_real_library_does_no_harm_on_any_machine() -> None:
    pytest.importorskip("pynvml", reason="pynvml is not installed")
    with GPUs() as gpus:
        assert len(gpus.read()) == len(gpus.columns)
        assert isinstance(gpus.get_facts(), list)
