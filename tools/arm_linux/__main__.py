"""Run a target on emulated ARM Linux, for tests and benchmarks, by one command.

    python tools/arm_linux serve ONNXRuntime --port 12345 --token-file token
    python tools/arm_linux machine --port 2222 --key key.pub

``serve`` emulates the processor alone (qemu-user): a server with Debian's Python for arm64 and the
packages of PyPI for aarch64, which listens at this machine's loopback address.  It has a token, as
any target, if one is named. ``machine`` emulates a whole machine (qemu-system): Debian's kernel,
and a small system with Python and an SSH server, for who has the key; ``nnpipe target install
root@127.0.0.1:2222 ONNXRuntime`` puts a server on it.  Both say in one line when they are ready,
and end with Ctrl-C or SIGTERM.

What is needed is fetched once into a folder, or that of the variable NNPIPE_ARM_LINUX, by ``apt-get
download`` and pip; nothing is installed on this machine but ``apt install qemu-user
qemu-system-arm``.  Times of emulated processors are no times of real ones.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import debian
import machine
import processor

FOLDER = Path(os.environ.get("NNPIPE_ARM_LINUX") or Path.home() / ".cache" / "nnpipe-arm-linux")
TOOLS = {
    "serve": ("qemu-aarch64", "apt-get", "dpkg-deb"),
    "machine": ("qemu-system-aarch64", "qemu-aarch64", "apt-get", "dpkg-deb"),
}


def main() -> int:
    """Fetch what is missing, and run the target until it is stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=tuple(TOOLS))
    parser.add_argument(
        "runtime", nargs="?", default="ONNXRuntime", help="serve: which one (default: ONNXRuntime)"
    )
    parser.add_argument("--port", type=int, required=True, help="TCP port on this machine")
    parser.add_argument("--token-file", type=Path, help="serve: the token of the server")
    parser.add_argument("--key", type=Path, help="machine: the public key of who may log in")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help=f"for what is fetched (default: {FOLDER})"
    )
    parser.add_argument(
        "--option", action="append", default=[], help="serve: a further option of inference_server"
    )
    options = parser.parse_args()
    missing = [tool for tool in TOOLS[options.action] if shutil.which(tool) is None]
    if missing:
        raise SystemExit(
            f"not installed: {', '.join(missing)}; apt install qemu-user qemu-system-arm, on Debian"
        )
    if options.action == "machine":
        if options.key is None:
            raise SystemExit("machine: name the public key of who may log in (--key)")
        system = debian.system(options.folder, debian.PYTHON + debian.SSH)
        return machine.run(options.folder, system, options.key.read_text(), options.port)
    system = debian.system(options.folder, debian.PYTHON)
    packages = processor.packages(options.folder, options.runtime)
    words = [
        *(["--token-file", str(options.token_file.resolve())] if options.token_file else []),
        *options.option,
    ]
    return processor.serve(system, packages, options.runtime, options.port, words)


if __name__ == "__main__":
    sys.exit(main())
