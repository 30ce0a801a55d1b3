from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from nnpipe.measuring.host import (
    get_framework_versions,
    list_thread_pools,
    read_host_facts,
    read_host_state,
)

CPUINFO = """\
processor\t: 0
model name\t: ARMv8 Processor rev 1 (v8l)
Features\t: fp asimd asimddp i8mm
flags\t\t: avx2 hypervisor avx512_vnni

processor\t: 1
model name\t: another

Model\t\t: Raspberry Pi 5 Model B
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A Linux machine's /proc and /sys."""
    cpus = "sys/devices/system/cpu"
    for name, text in {
        "proc/cpuinfo": CPUINFO,
        "proc/device-tree/model": "Raspberry Pi 5\0",
        f"{cpus}/cpu0/cpufreq/scaling_governor": "performance\n",
        f"{cpus}/cpu1/cpufreq/scaling_governor": "performance\n",
        f"{cpus}/intel_pstate/no_turbo": "1\n",
        f"{cpus}/smt/active": "1\n",
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/memory.max": "268435456\n",
        ".dockerenv": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_settings_of_a_linux_machine_are_found(root: Path) -> None:
    facts = read_host_facts({}, root)
    cpu = facts["cpu"]
    assert cpu["model"] == "ARMv8 Processor rev 1 (v8l)"
    assert cpu["governor"] == "performance"
    assert cpu["turbo"] is False
    assert cpu["hyperthreading"] is True
    assert cpu["instructions"] == ["asimd", "asimddp", "avx2", "avx512_vnni", "i8mm"]
    assert facts["hypervisor"] is True
    assert facts["board"] == "Raspberry Pi 5"
    assert facts["container"] is True
    assert facts["limits"] == {"cores": 1.5, "memory_bytes": 268435456}


def test_cores_that_are_governed_differently_are_told(root: Path) -> None:
    (root / "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor").write_text("powersave")
    assert read_host_facts({}, root)["cpu"]["governor"] == ["performance", "powersave"]


def test_the_older_control_groups_are_understood(root: Path) -> None:
    group = root / "sys/fs/cgroup"
    (group / "cpu.max").unlink()
    (group / "memory.max").write_text("max\n")
    (group / "cpu").mkdir()
    (group / "cpu/cpu.cfs_quota_us").write_text("50000")
    (group / "cpu/cpu.cfs_period_us").write_text("100000")
    assert read_host_facts({}, root)["limits"] == {"cores": 0.5}
    (group / "cpu/cpu.cfs_quota_us").write_text("-1")
    assert "limits" not in read_host_facts({}, root)


def test_what_a_machine_does_not_say_is_left_out(tmp_path: Path) -> None:
    facts = read_host_facts({}, tmp_path)
    assert not {"hypervisor", "board", "container", "limits"} & facts.keys()
    assert not {"governor", "turbo", "hyperthreading", "instructions"} & facts["cpu"].keys()
    assert facts["cpu"]["model"]


def test_this_machine_is_described() -> None:
    facts = read_host_facts()
    assert facts["cpu"]["logical_cores"] == psutil.cpu_count()
    assert facts["memory_bytes"] == psutil.virtual_memory().total
    assert sys.version.split()[0] in facts["python"]
    if sys.platform == "linux":
        assert facts["cpu"]["affinity"] == sorted(os.sched_getaffinity(0))
    json.dumps(facts, allow_nan=False)


def test_threads_set_by_the_environment_are_told_and_nothing_else() -> None:
    environment = {"OMP_NUM_THREADS": "3", "PASSWORD": "secret", "HOME": "/home/someone"}
    assert read_host_facts(environment)["environment"] == {"OMP_NUM_THREADS": "3"}


def test_a_machine_without_sensors_still_has_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("no such sensor")

    for name in ("getloadavg", "cpu_freq"):
        monkeypatch.setattr(psutil, name, refuse)
    monkeypatch.delattr(psutil, "sensors_temperatures", raising=False)  # as on Windows
    monkeypatch.delattr(psutil.Process, "cpu_affinity", raising=False)  # as on macOS
    state = read_host_state()
    assert not {"load_average", "cpu_mhz", "hottest_celsius"} & state.keys()
    assert "affinity" not in read_host_facts()["cpu"]


def test_the_state_can_be_written_and_moves_on() -> None:
    state = read_host_state()
    json.dumps(state, allow_nan=False)
    assert state["memory_available_bytes"] > 0
    assert state["process_bytes"] > 5_000_000
    assert state["process_threads"] >= 1
    assert state["time"].endswith("+00:00")


def test_versions_are_those_installed() -> None:
    found = get_framework_versions(["numpy", "psutil", "no-such-package"])
    assert found == {name: importlib.metadata.version(name) for name in ("numpy", "psutil")}


def test_asking_for_versions_imports_nothing() -> None:
    before = set(sys.modules)
    get_framework_versions()
    assert not {
        name
        for name in set(sys.modules) - before
        if name.partition(".")[0] in ("torch", "tensorflow", "keras")
    }


def test_thread_pools_tell_no_paths() -> None:
    pools = list_thread_pools()
    json.dumps(pools)
    assert all("/" not in str(value) for pool in pools for value in pool.values())
