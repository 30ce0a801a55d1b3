"""A whole emulated machine: Debian's kernel, and a system in memory with Python and an SSH
server.
"""

from __future__ import annotations

import gzip
import io
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import debian

READY = "the SSH server is started"
MODULES = ("failover", "net_failover", "virtio", "virtio_ring", "virtio_mmio", "virtio_net")
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian", "proc")
"""Folders of packages that the machine does without; its own ``proc`` is the kernel's."""
MEMORY = 1536  # MiB; a third holds packages of a runtime

INIT = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /var/log /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mkdir -p /dev/pts /dev/shm
/bin/busybox mount -t devpts pts /dev/pts
/bin/busybox mount -t tmpfs shm /dev/shm
/bin/busybox --install -s /usr/bin
/bin/busybox --install -s /bin
/bin/busybox ln -sf python3.11 /usr/bin/python3
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
for module in {" ".join(MODULES)}; do insmod /modules/$module.ko; done
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
route add default gw 10.0.2.2
chmod 700 /root /root/.ssh
chmod 600 /root/.ssh/authorized_keys /etc/dropbear/*
dropbear -s -E -r /etc/dropbear/host -p 22 && echo "{READY}"
while true; do sleep 1000; done
"""
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/usr/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/hostname": "board\n",
    "etc/shells": "/usr/bin/sh\n",
    "etc/hosts": "127.0.0.1 localhost board\n",
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm), a part of it"\nID=debian\n',
}


def run(folder: Path, system: Path, key: str, port: int) -> int:
    """Run a machine until it ends; say when its SSH server listens, and which key that has.

    Parameters
    ----------
    folder
        Holds the kernel.
    system
        The unpacked packages.
    key
        The public key of who may log in as root.
    port
        The port of this machine that leads to the SSH server.
    """
    for number in (signal.SIGTERM, signal.SIGINT):  # the emulator ends with this process
        signal.signal(number, lambda *_: sys.exit(0))
    kernel, modules = debian.kernel(folder)
    with tempfile.TemporaryDirectory(prefix="nnpipe-machine-") as name:
        host, shown = host_key(system, Path(name))
        more = {**FILES, "root/.ssh/authorized_keys": key, "init": INIT}
        image = Path(name, "initramfs.gz")
        found = {module: next(modules.rglob(f"{module}.ko")).read_bytes() for module in MODULES}
        content = {path: text.encode() for path, text in more.items()} | {"etc/dropbear/host": host}
        content |= {f"modules/{module}.ko": data for module, data in found.items()}
        image.write_bytes(gzip.compress(initramfs(system, content), 1, mtime=0))
        command = [
            "qemu-system-aarch64",
            "-M",
            "virt",
            "-cpu",
            "cortex-a72",
            "-m",
            str(MEMORY),
            "-nodefaults",
            "-display",
            "none",
            "-serial",
            "stdio",
            "-kernel",
            str(kernel),
            "-initrd",
            str(image),
            "-append",
            "console=ttyAMA0 quiet panic=-1",
            "-no-reboot",
            "-netdev",
            f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:22",
            "-device",
            "virtio-net-device,netdev=net",
        ]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if READY in line:
                    print(
                        f"a machine with SSH is at root@127.0.0.1:{port}, its key is {shown}",
                        flush=True,
                    )
                else:
                    print(line, end="", file=sys.stderr, flush=True)
            return process.wait()
        finally:
            process.kill()
            process.wait()


def host_key(system: Path, folder: Path) -> tuple[bytes, str]:
    """Return a new key of the machine as its SSH server reads it, and the public part."""
    program = str(system / "usr/bin/dropbearkey")
    path = folder / "host"
    done = subprocess.run(
        ["qemu-aarch64", "-L", str(system), program, "-t", "ed25519", "-f", str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    public = next(line for line in done.stdout.splitlines() if line.startswith("ssh-"))
    return path.read_bytes(), " ".join(public.split()[:2])


def initramfs(system: Path, files: dict[str, bytes]) -> bytes:
    """Return the system with further files as the kernel reads it (cpio, the "new" format)."""
    made = io.BytesIO()
    entries = dict.fromkeys(("dev", "proc", "sys", "tmp", "root"), (stat.S_IFDIR | 493, b""))
    entries |= dict(_entries(system))
    for path, data in files.items():
        for parent in reversed(Path(path).parents):
            if str(parent) != ".":
                entries.setdefault(str(parent), (stat.S_IFDIR | 0o755, b""))
        entries[path] = (stat.S_IFREG | (0o755 if path == "init" else 0o644), data)
    for number, (path, (mode, data)) in enumerate(entries.items(), 1):
        made.write(_record(number, path, mode, data))
    made.write(_record(0, "TRAILER!!!", 0, b""))
    return made.getvalue()


def _entries(system: Path) -> Iterator[tuple[str, tuple[int, bytes]]]:
    for folder, folders, names in os.walk(system):
        folders.sort()
        relative = Path(folder).relative_to(system)
        if relative.as_posix().startswith(LEFT_OUT):
            folders.clear()
            continue
        if str(relative) != ".":
            yield str(relative), (stat.S_IFDIR | 0o755, b"")
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for path in (Path(folder, name) for name in sorted([*names, *links])):
            mode = path.lstat().st_mode
            data = str(path.readlink()).encode() if stat.S_ISLNK(mode) else path.read_bytes()
            yield str(path.relative_to(system)), (mode, data)


def _record(number: int, path: str, mode: int, data: bytes) -> bytes:
    name = path.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + name) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
