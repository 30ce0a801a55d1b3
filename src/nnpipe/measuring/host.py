"""Facts about the machine that affect a measurement: hardware, settings, load, and installed
versions.

Linux provides all of them, other systems those that psutil and Python can read.
Unknown facts are left out, never guessed.  Nothing that identifies a person or a
network (host name, user, paths) is recorded.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import warnings
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from nnpipe.core.processor import read_instruction_sets
from nnpipe.core.registry import ENTRY_POINTS
from nnpipe.measuring.counters import GPUs, read_counters

PACKAGES = tuple(
    "nnpipe numpy psutil torch torchvision tensorflow tensorflow-cpu keras jax jaxlib onnx "
    "onnxruntime onnxruntime-gpu onnxscript tf2onnx ai-edge-litert tflite-runtime apache-tvm "
    "openvino tensorrt h5py "
    "safetensors".split()
)
"""Distributions whose versions go into result files."""

THREAD_VARIABLES = tuple(
    "OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES OMP_WAIT_POLICY GOMP_CPU_AFFINITY KMP_AFFINITY "
    "KMP_BLOCKTIME MKL_NUM_THREADS OPENBLAS_NUM_THREADS BLIS_NUM_THREADS VECLIB_MAXIMUM_THREADS "
    "NUMEXPR_NUM_THREADS TF_NUM_INTRAOP_THREADS TF_NUM_INTEROP_THREADS TF_ENABLE_ONEDNN_OPTS "
    "ONEDNN_MAX_CPU_ISA CUDA_VISIBLE_DEVICES "
    "CUDA_LAUNCH_BLOCKING MALLOC_ARENA_MAX PYTHONOPTIMIZE".split()
)
"""Environment variables that affect speed."""

_INSTRUCTIONS = frozenset(
    "avx avx2 fma avx_vnni avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_int8 amx_bf16 "
    "neon asimd asimddp asimdhp bf16 i8mm sve sve2 sme".split()
)


def get_framework_versions(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of these distributions, if installed, and of nnpipe's plugins; nothing is
    imported.

    A process looks for them once.
    """
    return dict(_read_versions(tuple(names)))


@functools.lru_cache(maxsize=8)
def _read_versions(names: tuple[str, ...]) -> Mapping[str, str]:
    plugins = {
        entry.dist.name
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)
        if entry.dist
    }
    found = {}
    for name in (*names, *sorted(plugins)):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def read_host_facts(
    environment: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> dict[str, Any]:
    """Return the facts that do not change during a measurement.

    Parameters
    ----------
    environment
        The environment variables, of which :data:`THREAD_VARIABLES` are read.
    root
        The folder of ``/proc`` and ``/sys``; tests give their own.

    Returns
    -------
    dict
        JSON values: ``system``, ``python``, ``cpu``, ``memory_bytes``,
        ``environment``, ``gpus``, and, if known, ``board``, ``hypervisor``,
        ``container`` and ``limits``.
    """
    facts: dict[str, Any] = {
        "system": _read_system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "cpu": _read_cpu(root),
        "memory_bytes": psutil.virtual_memory().total,
        "environment": {
            name: environment[name] for name in THREAD_VARIABLES if name in environment
        },
    }
    with GPUs() as gpus:
        facts["gpus"] = gpus.get_facts()
    flags = _read_cpuinfo(root).get("flags", "").split()  # of x86, where a hypervisor shows itself
    if flags:
        facts["hypervisor"] = "hypervisor" in flags
    if board := _read_text(root / "proc/device-tree/model"):
        facts["board"] = board
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        facts["container"] = True
    if limits := _read_limits(root):
        facts["limits"] = limits
    return facts


def read_host_state() -> dict[str, Any]:
    """Return the facts that may change during a measurement: time, load, clock rate, temperatures,
    free memory.

    ``counters`` are those of :func:`nnpipe.measuring.counters.read_counters`.
    """
    memory, swap, process = psutil.virtual_memory(), psutil.swap_memory(), psutil.Process()
    state: dict[str, Any] = {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "memory_available_bytes": memory.available,
        "swap_used_bytes": swap.used,
        "process_bytes": process.memory_info().rss,
        "process_threads": process.num_threads(),
        "counters": read_counters(),
    }
    with contextlib.suppress(OSError, AttributeError):
        state["load_average"] = [round(load, 2) for load in psutil.getloadavg()]
    with contextlib.suppress(OSError, AttributeError, NotImplementedError, RuntimeError):
        if frequency := psutil.cpu_freq():
            state["cpu_mhz"] = round(frequency.current, 1)
    with contextlib.suppress(OSError, AttributeError):
        if hottest := [
            entry.current for entries in psutil.sensors_temperatures().values() for entry in entries
        ]:
            state["hottest_celsius"] = round(max(hottest), 1)
    return state


def list_thread_pools() -> list[dict[str, Any]]:
    """Return the thread pools of loaded libraries (BLAS, OpenMP), if ``threadpoolctl`` is
    installed.
    """
    if importlib.util.find_spec("threadpoolctl") is None:
        return []
    import threadpoolctl

    kept = ("user_api", "internal_api", "version", "num_threads", "threading_layer", "architecture")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about mixed OpenMP libraries
        pools = threadpoolctl.threadpool_info()
    return [{name: pool[name] for name in kept if name in pool} for pool in pools]


def _read_system() -> dict[str, Any]:
    found = {
        "name": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
    }
    with contextlib.suppress(OSError, AttributeError):
        found["distribution"] = platform.freedesktop_os_release()["PRETTY_NAME"]
    if platform.system() == "Darwin":
        found["distribution"] = f"macOS {platform.mac_ver()[0]}"
    return found


def _read_cpu(root: Path) -> dict[str, Any]:
    info = _read_cpuinfo(root)
    found: dict[str, Any] = {
        "model": info.get("model name")
        or info.get("Model")
        or platform.processor()
        or platform.machine(),
        "physical_cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
    }
    if instructions := sorted(_INSTRUCTIONS & read_instruction_sets(root)):
        found["instructions"] = instructions
    with contextlib.suppress(OSError, AttributeError):
        found["affinity"] = sorted(psutil.Process().cpu_affinity() or [])
    with contextlib.suppress(OSError, AttributeError, NotImplementedError, RuntimeError):
        if (frequency := psutil.cpu_freq()) and frequency.max:
            found["min_mhz"], found["max_mhz"] = round(frequency.min, 1), round(frequency.max, 1)
    cpus = root / "sys/devices/system/cpu"
    # Big and little cores can have different governors; all of them are listed.
    if governors := sorted(
        {
            text
            for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")
            if (text := _read_text(path))
        }
    ):
        found["governor"] = governors[0] if len(governors) == 1 else governors
    for name, path, meaning in (
        ("turbo", cpus / "intel_pstate/no_turbo", {"0": True, "1": False}),
        ("turbo", cpus / "cpufreq/boost", {"1": True, "0": False}),
        ("hyperthreading", cpus / "smt/active", {"1": True, "0": False}),
    ):
        if (text := _read_text(path)) in meaning:
            found[name] = meaning[text]
    return found


def _read_cpuinfo(root: Path) -> dict[str, str]:
    """Return the entries of ``/proc/cpuinfo`` for the first core, and those for the board at its
    end.
    """
    found: dict[str, str] = {}
    for line in (_read_text(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found


def _read_limits(root: Path) -> dict[str, Any]:
    """Return the processor and memory limits of a container (control groups, versions 2 and 1)."""
    group = root / "sys/fs/cgroup"
    found: dict[str, Any] = {}
    quota, _, period = (_read_text(group / "cpu.max") or "").partition(" ")
    if not quota:
        quota, period = (
            _read_text(group / "cpu/cpu.cfs_quota_us") or "",
            _read_text(group / "cpu/cpu.cfs_period_us") or "",
        )
    if quota.isdigit() and period.isdigit() and int(period):
        found["cores"] = round(int(quota) / int(period), 3)
    memory = (
        _read_text(group / "memory.max") or _read_text(group / "memory/memory.limit_in_bytes") or ""
    )
    if memory.isdigit() and int(memory) < psutil.virtual_memory().total:
        found["memory_bytes"] = int(memory)
    return found


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return None


def get_machine_name(facts: Mapping[str, Any] | None = None) -> str:
    """Return a name for machines with this processor, as part of a path.

    It says nothing about whose machine it is, so virtual machines of one kind have one name.

    Parameters
    ----------
    facts
        Those of :func:`~nnpipe.measuring.host.read_host_facts`; by default of this machine.

    Examples
    --------
    >>> get_machine_name({"cpu": {"model": "ACME (R) 9000", "logical_cores": 4, "instructions": ["avx2"]}})
    'acme-r-9000-4-cores-d6ab4a5a'
    """
    cpu = (read_host_facts() if facts is None else facts)["cpu"]
    model = (
        re.sub(r"[^a-z0-9]+", "-", str(cpu.get("model", "unknown")).lower()).strip("-")[:60]
        or "unknown"
    )
    told = f"{cpu.get('model')} {cpu.get('logical_cores')} {cpu.get('instructions')}"
    return f"{model}-{cpu.get('logical_cores')}-cores-{zlib.crc32(told.encode()):08x}"


def get_machine_folder(home: Path) -> Path:
    """Return the folder for what is known about this machine, which may not exist yet."""
    return home / ".local" / "share" / "nnpipe" / "machines" / get_machine_name()
