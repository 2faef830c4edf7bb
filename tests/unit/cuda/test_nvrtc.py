"""Programs are compiled in processes beside this one, within limits."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import get_ident
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import cuda.bindings
import pytest

from autotune import child_process, settings
from autotune.cuda import compiler, nvrtc
from autotune.cuda.nvrtc import Helper, Helpers, Request
from autotune.errors import MissingError, UsageError
from autotune.report import doctor

TEXT = "template <int N> __global__ void scaled(float* x) { x[threadIdx.x] *= N; }"
# Each level doubles the text four times: compiling it takes hours.
ENDLESS = (
    "#define M0 x+\n"
    + "".join(f"#define M{n + 1} M{n} M{n} M{n} M{n}\n" for n in range(19))
    + "template <int N> __global__ void scaled(float* x) { int y = N; x[0] = M19 0; }"
)
CRASHING = """
import os
import autotune.cuda.nvrtc as h
h.compiled = lambda request: {end}
h.serve({{descriptor}})
"""
IMPATIENT = "import autotune.cuda.nvrtc as h; h.IDLE_S = 0.05; h.serve({descriptor})"


def request(number: int = 1, text: str = TEXT) -> Request:
    options = "--gpu-architecture=sm_90a", "--ptxas-options=-v", "--minimal"
    return Request(text, "scaled.cu", f"scaled<{number}>", options, "CUBIN")


@pytest.fixture
def own() -> Iterator[Helpers]:
    """Helpers, which are stopped afterwards."""
    helpers = Helpers()
    yield helpers
    helpers.close()


def started(monkeypatch: pytest.MonkeyPatch) -> list[Helper]:
    """The helpers that start from now on."""
    seen: list[Helper] = []
    start = Helper.__init__

    def counted(self: Helper) -> None:
        start(self)
        seen.append(self)

    monkeypatch.setattr(Helper, "__init__", counted)
    return seen


def test_first_product_starts_no_process(own: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = started(monkeypatch)
    assert own.output(request(), here=True)[0] == own.output(request(), here=True)[0]
    assert not seen


def test_second_of_two_first_products_is_compiled_beside(
    own: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = started(monkeypatch)
    with own._here:
        assert own.output(request(), here=True)[0] is not None
    assert len(seen) == 1


def test_compilation_over_the_time_limit_fails(
    own: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = started(monkeypatch)
    monkeypatch.setattr(nvrtc, "SECONDS", 1.0)
    cubin, log, _ = own.output(request(text=ENDLESS))
    assert cubin is None
    assert "NVRTC took longer than" in log
    assert seen[0].ended


def test_compilation_over_the_memory_limit_fails(
    own: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "MEMORY", 96 << 20)
    nested = "1"
    for _ in range(4):
        nested = f"R({nested})"
    ones = f"#define R(x) {', '.join('x' * 32)}\n__device__ int ones[] = {{{nested}}};\n"
    cubin, log, _ = own.output(request(text=ones + TEXT))
    assert cubin is None
    assert "memory" in log


def test_stopped_compilation_fails_at_once(own: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = started(monkeypatch)
    with ThreadPoolExecutor(1) as threads:
        thread = threads.submit(get_ident).result()
        output = threads.submit(own.output, request(text=ENDLESS))
        while thread not in own._busy:
            sleep(0.01)
        own.stop([thread])
        assert output.result(10) == (None, "error: the compilation was stopped", "")
    assert seen[0].ended
    assert not own._busy


def test_helpers_give_what_this_process_gives(own: Helpers) -> None:
    cubin, log, symbol = own.output(request())
    assert cubin == nvrtc.compiled(request())[0] is not None
    assert symbol == nvrtc.compiled(request())[2] == "_Z6scaledILi1EEvPf"
    assert "scaled" in log


def test_helpers_give_the_errors_of_the_source(own: Helpers) -> None:
    cubin, log, _ = own.output(request(text="nonsense"))
    assert cubin is None
    assert "error" in log


def test_a_helper_takes_one_request_after_the_other(
    own: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = started(monkeypatch)
    assert len({own.output(request(number))[0] for number in range(3)}) == 3
    assert len(seen) == 1


def test_threads_get_their_own_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, own = started(monkeypatch), Helpers()
    requests = [request(number) for number in range(12)]
    with ThreadPoolExecutor(3) as threads:
        cubins = [cubin for cubin, *_ in threads.map(own.output, requests)]
    own.close()
    assert cubins == [nvrtc.compiled(item)[0] for item in requests]
    assert 1 <= len(seen) <= 3


def test_a_crash_of_the_compiler_fails_its_program(
    own: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "PROGRAM", CRASHING.format(end="os.abort()"))
    assert own.output(request()) == (None, "NVRTC was killed by SIGABRT", "")
    monkeypatch.undo()
    assert own.output(request())[0] is not None


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(1)"])
def test_compiler_that_ends_its_process_fails_its_program(
    end: str, own: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = started(monkeypatch)
    monkeypatch.setattr(child_process, "PROGRAM", CRASHING.format(end=end))
    cubin, log, _ = own.output(request())
    assert (cubin, len(seen)) == (None, 2)
    assert "ended without a message" in log


@pytest.mark.parametrize(
    "program",
    ["import os; os.kill(os.getpid(), 9)", "raise SystemExit(1)", "raise SystemExit(0)"],
)
def test_helper_that_cannot_serve_leaves_it_to_this_process(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "PROGRAM", program)
    assert_compiled_here()


def test_without_an_interpreter_everything_is_compiled_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert_compiled_here()


def assert_compiled_here() -> None:
    """A second compilation waits for the first one, and then runs in this process."""
    own = Helpers()
    with ThreadPoolExecutor(1) as threads:
        with own._here:
            output = threads.submit(own.output, request())
            sleep(0.3)
            assert not output.done()
        assert output.result()[0] == nvrtc.compiled(request())[0]
    assert not own._idle


def test_idle_helpers_end_and_others_start(own: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "PROGRAM", IMPATIENT)
    seen = started(monkeypatch)
    first = own.output(request())
    wait_for_end(seen[0]._process.pid)
    assert own.output(request())[0] == first[0]
    assert len(seen) == 2


def test_closing_ends_the_helpers(own: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = started(monkeypatch)
    own.output(request())
    own.close()
    assert seen[0].ended


def test_interrupted_requests_end_their_helper(
    own: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = started(monkeypatch)

    def interrupted(*_: object) -> nvrtc.Output:
        raise KeyboardInterrupt

    monkeypatch.setattr(Helper, "output", interrupted)
    with pytest.raises(KeyboardInterrupt):
        own.output(request())
    assert seen[0].ended
    assert not own._idle


SCRIPT = """
import os
from autotune.cuda.nvrtc import SHARED
from autotune.cuda.nvrtc import Request
SHARED.output(Request("nonsense", "x.cu", "x", ("--gpu-architecture=sm_90",), "CUBIN"))
print(SHARED._idle[0]._process.pid, flush=True)
if os.fork() == 0:
    os._exit(len(SHARED._idle))
assert os.wait()[1] == 0, "the fork has its parent's helpers"
{end}
"""


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_helpers_end_with_their_parent(end: str, tmp_path: Path) -> None:
    script = [sys.executable, "-c", SCRIPT.format(end=end)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "Traceback" not in done.stderr
    wait_for_end(int(done.stdout))


INTERRUPTED = """
import signal, sys
from autotune.cuda.nvrtc import SHARED, Helper
from autotune.cuda.nvrtc import Request
signal.signal(signal.SIGINT, signal.default_int_handler)
start = Helper.__init__

def shown(self):
    start(self)
    print(self._process.pid, flush=True)

Helper.__init__ = shown
options = ("--gpu-architecture=sm_90",)
SHARED.output(Request(sys.stdin.read(), "x.cu", "scaled<1>", options, "CUBIN"))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_ends_an_endless_compilation(number: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(ENDLESS)
    process.stdin.close()
    helper = int(process.stdout.readline())
    sleep(1)
    process.send_signal(number)
    assert process.wait(10) != 0
    process.stdout.close()
    wait_for_end(helper)


def wait_for_end(pid: int) -> None:
    """Waits until a process has ended, whether its parent knows of that or not."""
    end = monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "Z" not in state(pid):
        assert monotonic() < end, f"process {pid} goes on"
        sleep(0.01)


def state(pid: int) -> str:
    """The state of a process in one letter, `Z` for one that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


FOLDERS = {12: "cuda_nvrtc/lib", 13: "cu13/lib"}


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The libraries that are loaded, in order, out of wheels of both versions."""
    for major, folder in FOLDERS.items():
        (tmp_path / folder).mkdir(parents=True)
        for name in (f"libnvrtc.so.{major}", f"libnvrtc-builtins.so.{major}.0"):
            (tmp_path / folder / name).touch()
    names: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda path, _: names.append(Path(path).name))
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(nvrtc, "find_spec", lambda _: package)
    monkeypatch.delenv("AUTOTUNE_NVRTC", raising=False)
    nvrtc._load.cache_clear()
    return names


@pytest.mark.parametrize(("version", "major"), [("12.9.4", 12), ("13.0.0", 13)])
def test_nvrtc_is_that_of_the_bindings(
    version: str, major: int, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda.bindings, "__version__", version)
    nvrtc._load(nvrtc._major())
    assert loaded == [f"libnvrtc-builtins.so.{major}.0", f"libnvrtc.so.{major}"]


@pytest.mark.parametrize("major", [12, 13])
def test_variable_chooses_the_nvrtc(
    major: int, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_NVRTC", f"{major}")
    nvrtc._load(nvrtc._major())
    assert loaded[-1] == f"libnvrtc.so.{major}"


def test_other_version_than_the_chosen_one_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cuda.bindings import nvrtc as bindings

    monkeypatch.setattr(bindings, "nvrtcVersion", lambda: (0, 13, 0))
    monkeypatch.setattr(nvrtc, "_load", lambda _: None)
    monkeypatch.setenv("AUTOTUNE_NVRTC", "12")
    assert nvrtc.version() is None
    ok, _, remedy = doctor._nvrtc()
    assert (ok, "tile-autotune[cu12]" in remedy) == (False, True)


def test_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_NVRTC", "11")
    with pytest.raises(UsageError, match="AUTOTUNE_NVRTC is 11; give 12 or 13"):
        settings.nvrtc()


@pytest.fixture
def only_the_wheel_of_13(
    loaded: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """A wheel of NVRTC 13 beside bindings of CUDA 12."""
    (tmp_path / FOLDERS[12] / "libnvrtc.so.12").unlink()
    monkeypatch.setattr(cuda.bindings, "__version__", "12.9.4")
    return loaded


WARNING = (
    "the installed wheel is NVRTC 13 and does not match cuda-bindings 12.9.4; run "
    "`pip install 'tile-autotune[cu12]'`"
)


@pytest.mark.usefixtures("only_the_wheel_of_13")
@pytest.mark.parametrize("version", ["NVRTC 12.9", None])
def test_doctor_names_a_wheel_that_does_not_match(
    version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "version", lambda: version)
    _, detail, remedy = doctor._nvrtc()
    assert (version or "not installed") in detail
    assert remedy == WARNING


@pytest.mark.usefixtures("only_the_wheel_of_13")
def test_no_compiler_names_a_wheel_that_does_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "version", lambda: None)
    with pytest.raises(MissingError) as raised:
        compiler.compiler_version()
    assert str(raised.value).endswith(WARNING)


@pytest.mark.usefixtures("loaded")
def test_matching_wheel_needs_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("12.9.4", "13.0.0"):
        monkeypatch.setattr(cuda.bindings, "__version__", version)
        assert nvrtc.mismatch() is None


@pytest.mark.usefixtures("only_the_wheel_of_13")
def test_chosen_nvrtc_needs_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_NVRTC", "13")
    assert nvrtc.mismatch() is None


@pytest.mark.parametrize(("version", "known"), [((12, 8), False), ((12, 9), True), ((13, 0), True)])
def test_option_against_the_cache_needs_the_version_with_one(
    version: tuple[int, int], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuda.bindings import nvrtc as bindings

    monkeypatch.setattr(bindings, "nvrtcVersion", lambda: (0, *version))
    assert ("--no-cache" in nvrtc._known(nvrtc.OPTIONS)) is known


CHOSEN = """
import sys
from pathlib import Path
from autotune.cuda import nvrtc
from autotune.families.plan import Template
template = Template("probe.cu", "probe", (("N", 1),))
cubin, log, _ = nvrtc.build(template, "sm_90a", Path(sys.argv[1]), ())
print(cubin[:4] if cubin else log, nvrtc.version())
"""
PROBE = """
template <int N> __global__ void probe(int* x)
{
    asm volatile("wgmma.fence.sync.aligned;");
    x[threadIdx.x] = N;
}
"""


@pytest.mark.parametrize("major", [12, 13])
def test_either_nvrtc_compiles_for_hopper(major: int, tmp_path: Path) -> None:
    package = find_spec("nvidia")
    places: Any = package.submodule_search_locations if package else []
    if not any(Path(place, FOLDERS[major]).is_dir() for place in places):
        pytest.skip(f"no wheel of NVRTC {major}")
    (tmp_path / "probe.cu").write_text(PROBE)
    result = subprocess.run(
        [sys.executable, "-c", CHOSEN, str(tmp_path)],
        env={**os.environ, "AUTOTUNE_NVRTC": f"{major}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.startswith(f"b'\\x7fELF' NVRTC {major}."), result.stdout + result.stderr
