"""The machine code of `calls.c`: from the cache, else from the machine's C compiler."""

from __future__ import annotations

import os
import subprocess
import tempfile
import warnings
from hashlib import sha256
from importlib import resources
from pathlib import Path

from autotune import settings
from autotune.files import limits, trust, write_whole

FLAGS = ("-std=c11", "-O2", "-shared", "-fPIC")
COMPILER_SECONDS = 60.0


def machine_code(compiler: Path, *, kept_only: bool = False) -> bytes:
    """A shared library of `calls.c`, compiled if the cache has none that can be trusted.

    Warns if the cache has one that cannot. With `kept_only` nothing is compiled.

    Raises:
        CacheError: if the cache cannot be written, or other users can write in the folder.
        OSError: if the compiler does not start; with `kept_only`, if the cache has none.
        subprocess.SubprocessError: if it fails.
    """
    source = resources.files(__package__).joinpath("calls.c").read_bytes()
    parts = *map(str.encode, FLAGS), os.fsencode(compiler), os.uname().machine.encode()
    key = sha256(b"\0".join((source, *parts))).hexdigest()
    # A folder for each user: one user's code is of no use to the next, who must not trust it.
    path = settings.cache_dir() / f"native-{os.geteuid()}" / f"{key}.so"
    fault: object = None
    try:
        return trust.unsealed(key, trust.read_own(path, limits.PROGRAM))
    except FileNotFoundError:
        if kept_only:
            raise
    except (OSError, ValueError) as error:
        if kept_only:
            raise OSError(str(error)) from error
        fault = error.strerror if isinstance(error, OSError) else error
    settings.ensure(path.parent, private=True)
    code = _compile(compiler, source)
    if fault is not None:
        warnings.warn(f"{path} is not loaded but compiled again: {fault}", stacklevel=2)
    # Not durable: a file that a power cut damages fails its checksum and is compiled again.
    write_whole(path, trust.sealed(key, code), durable=False, mode=0o600)
    return code


def _compile(compiler: Path, source: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="autotune-") as scratch:
        output = Path(scratch, "calls.so")
        command = [str(compiler), *FLAGS, "-x", "c", "-o", str(output), "-"]
        subprocess.run(
            command, input=source, capture_output=True, check=True, timeout=COMPILER_SECONDS
        )
        return output.read_bytes()
