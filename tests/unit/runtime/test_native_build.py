"""The compiled part of warm calls in the cache: loaded only if it is whole and this user's own."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune import settings
from autotune.errors import CacheError
from autotune.files import trust
from autotune.runtime.native import build, compiled

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

PLANTED = """
#include <stdlib.h>
__attribute__((constructor)) static void run(void) { setenv("AUTOTUNE_TEST_PLANTED", "1", 1); }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the compiled part."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE_DIR", str(cache))
        build.machine_code(compiler())
    return cache


@pytest.fixture
def path(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The compiled part in a cache of its own, which is the process's."""
    cache = tmp_path / "cache"
    shutil.copytree(built, cache)
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(cache))
    compiled.library.cache_clear()
    (path,) = cache.rglob("*.so")
    yield path
    compiled.library.cache_clear()


def compiler() -> Path:
    found = settings.c_compiler()
    assert found is not None
    return found


def warned() -> tuple[compiled.NativeLibrary | None, list[str]]:
    """The library as the process gets it, and the warnings on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        library = compiled.library()
    return library, [str(warning.message) for warning in caught]


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a file belong to another user than this process's."""
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        status = path.stat()
        other = status.st_uid + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)


def shared_library(folder: Path, source: str) -> bytes:
    """The machine code of a C source."""
    output = folder / "other.so"
    command: list[str | Path] = [compiler(), "-shared", "-fPIC", "-x", "c", "-o", output, "-"]
    subprocess.run(command, input=source.encode(), check=True)
    return output.read_bytes()


def test_intact_file_is_loaded_without_a_compiler(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(*_: object) -> bytes:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr(build, "_compile", failed)
    library, messages = warned()
    assert (library is not None, messages) == (True, [])
    assert path.exists()


def test_file_and_folder_are_for_this_user_alone(path: Path) -> None:
    modes = [stat.S_IMODE(item.stat().st_mode) for item in (path, path.parent)]
    assert modes == [0o600, 0o700]


@pytest.mark.usefixtures("path")
def test_umask_of_a_group_gives_nobody_access(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "other"))
    old = os.umask(0o002)
    try:
        assert compiled.library() is not None
    finally:
        os.umask(old)
    compiled.library.cache_clear()
    assert warned()[1] == []


def cut(length: float) -> Callable[[bytes], bytes]:
    return lambda data: data[: int(len(data) * length)]


@pytest.mark.parametrize(
    "damage",
    [
        *map(cut, (0, 0.01, 0.2, 0.5, 0.9)),
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data + b"\0",
        lambda data: data[65:],
    ],
)
def test_damaged_file_is_compiled_again(path: Path, damage: Callable[[bytes], bytes]) -> None:
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    library, messages = warned()
    assert library is not None
    assert messages == [
        f"{path} is not loaded but compiled again: its checksum is wrong; the file was changed, "
        "renamed or cut short"
    ]
    assert path.read_bytes() == whole


def test_file_of_another_user_is_never_loaded(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(trust.sealed(path.stem, shared_library(tmp_path, PLANTED)))
    give_away(path, monkeypatch)
    if os.geteuid() == 0:
        library, messages = warned()
        assert library is not None
        assert ["it belongs to user 12345" in message for message in messages] == [True]
    else:
        with pytest.raises(CacheError, match="belongs to user"):
            trust.read_own(path, 1 << 20)
    assert "AUTOTUNE_TEST_PLANTED" not in planted()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_file_that_others_can_write_is_never_loaded(path: Path, tmp_path: Path, mode: int) -> None:
    path.write_bytes(trust.sealed(path.stem, shared_library(tmp_path, PLANTED)))
    path.chmod(mode)
    library, messages = warned()
    assert library is not None
    assert [f"other users can write it (mode {mode:04o})" in message for message in messages] == [
        True
    ]
    assert "AUTOTUNE_TEST_PLANTED" not in planted()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_nothing_is_loaded_from_a_folder_that_others_can_write(
    path: Path, tmp_path: Path, mode: int
) -> None:
    path.write_bytes(trust.sealed(path.stem, shared_library(tmp_path, PLANTED)))
    path.parent.chmod(mode)
    library, messages = warned()
    assert library is None
    assert messages == [
        f"warm calls run in Python: {path.parent}: other users can write it (mode {mode:04o}), so "
        "no code in it is run; delete the directory, or make it yours with chown and chmod go-w"
    ]
    assert "AUTOTUNE_TEST_PLANTED" not in planted()


def planted() -> str:
    """The variables that C code of this process has set; Python's own copy is older."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype, getenv.argtypes = ctypes.c_char_p, (ctypes.c_char_p,)
    return "AUTOTUNE_TEST_PLANTED" if getenv(b"AUTOTUNE_TEST_PLANTED") else ""


def test_planted_code_would_show(path: Path, tmp_path: Path) -> None:
    code = shared_library(tmp_path, PLANTED)
    path.write_bytes(trust.sealed(path.stem, code))
    try:
        assert compiled.library() is None
        assert "AUTOTUNE_TEST_PLANTED" in planted()
    finally:
        ctypes.CDLL(None).unsetenv(b"AUTOTUNE_TEST_PLANTED")


def test_own_library_without_our_functions_leaves_python(path: Path, tmp_path: Path) -> None:
    code = shared_library(tmp_path, "int autotune_table(void) { return 0; }")
    path.write_bytes(trust.sealed(path.stem, code))
    assert warned() == (None, [])


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("replacement", [make_fifo, lambda path: path.symlink_to("/dev/zero")])
def test_pipe_or_device_in_its_place_is_replaced(
    path: Path, replacement: Callable[[Path], None]
) -> None:
    path.unlink()
    replacement(path)
    library, messages = warned()
    assert (library is not None, len(messages)) == (True, 1)
    assert path.is_file()


def test_directory_in_its_place_leaves_python(path: Path) -> None:
    path.unlink()
    path.mkdir()
    library, messages = warned()
    assert (library, len(messages)) == (None, 1)


def test_file_cut_short_while_loaded_harms_nobody(path: Path) -> None:
    # In a process of its own: a mapped file would end it with SIGBUS.
    script = (
        "import os, sys; from autotune.runtime.native import compiled\n"
        "library = compiled.library()\n"
        "os.truncate(sys.argv[1], 0)\n"
        "print(library.functions.autotune_free(library.functions.autotune_table(bytes(64))))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, "1\n")


def test_libraries_of_two_caches_are_told_apart(path: Path, tmp_path: Path) -> None:
    first = compiled.library()
    assert first is not None
    compiled.library.cache_clear()
    code = shared_library(tmp_path, "int autotune_table(void) { return 0; }")
    path.write_bytes(trust.sealed(path.stem, code))
    # The dynamic linker would return the first library again if both had one path.
    assert compiled.library() is None
