"""Compiles `calls.c` into a shared library beside it, when the package is built or by hand:

    python -m autotune.runtime.native.build

The hook of the build (`hatch_build.py`) runs this file without the package's dependencies.
"""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

FLAGS = ("-std=c11", "-O2", "-shared", "-fPIC")
COMPILER_SECONDS = 60.0
SOURCE = Path(__file__).with_name("calls.c")


def library_name() -> str:
    """The file name of the library, with a hash of its source: a library of another source is never
    loaded. It does not end as a module of Python would."""
    return f"calls-{sha256(SOURCE.read_bytes()).hexdigest()[:16]}.library"


def build(folder: Path) -> Path:
    """Compiles the library into a folder, with `CC` or else `cc`.

    It names no function of Python, so it fits every version.

    Raises:
        OSError: if the compiler does not start.
        subprocess.SubprocessError: if it fails.
    """
    output = folder / library_name()
    # Another name until it is whole: a process that has the old file mapped keeps it.
    scratch = output.with_suffix(f".{os.getpid()}")
    command = [os.environ.get("CC") or "cc", *FLAGS, "-o", str(scratch), str(SOURCE)]
    try:
        subprocess.run(command, check=True, timeout=COMPILER_SECONDS)
        scratch.replace(output)
    finally:
        scratch.unlink(missing_ok=True)
    return output


if __name__ == "__main__":
    sys.stdout.write(f"{build(SOURCE.parent)}\n")
