"""Programs that are compiled at once are compiled in several processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import pytest

from autotune import child_process
from autotune.compiler import nvrtc
from autotune.compiler.helpers import Helper, Helpers
from autotune.compiler.nvrtc import Request

TEXT = "template <int N> __global__ void scaled(float* x) { x[threadIdx.x] *= N; }"
IMPATIENT = "import autotune.compiler.helpers as h; h.IDLE_S = 0.05; h.serve({descriptor})"


def request(number: int = 1, text: str = TEXT) -> Request:
    options = "--gpu-architecture=sm_90a", "--ptxas-options=-v", "--minimal"
    return Request(text, "scaled.cu", f"scaled<{number}>", options, "CUBIN")


@pytest.fixture
def busy() -> Iterator[Helpers]:
    """Helpers of a process that is compiling itself."""
    own = Helpers()
    with own._here:
        yield own
    own.close()


def started(monkeypatch: pytest.MonkeyPatch) -> list[Helper]:
    """The helpers that start from now on."""
    seen: list[Helper] = []
    start = Helper.__init__

    def counted(self: Helper) -> None:
        start(self)
        seen.append(self)

    monkeypatch.setattr(Helper, "__init__", counted)
    return seen


def test_a_single_compilation_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, own = started(monkeypatch), Helpers()
    assert own.output(request())[0] == own.output(request())[0]
    assert not seen


def test_helpers_give_what_this_process_gives(busy: Helpers) -> None:
    cubin, log = busy.output(request())
    assert cubin == nvrtc.compiled(request())[0] is not None
    assert "scaled" in log


def test_helpers_give_the_errors_of_the_source(busy: Helpers) -> None:
    cubin, log = busy.output(request(text="nonsense"))
    assert cubin is None
    assert "error" in log


def test_a_helper_takes_one_request_after_the_other(
    busy: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = started(monkeypatch)
    assert len({busy.output(request(number))[0] for number in range(3)}) == 3
    assert len(seen) == 1


def test_threads_get_their_own_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, own = started(monkeypatch), Helpers()
    requests = [request(number) for number in range(12)]
    with ThreadPoolExecutor(3) as threads:
        cubins = [cubin for cubin, _ in threads.map(own.output, requests)]
    own.close()
    assert cubins == [nvrtc.compiled(item)[0] for item in requests]
    assert 1 <= len(seen) <= 2


def test_a_crash_of_the_compiler_fails_its_program(
    busy: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "PROGRAM", "import os; os.abort()")
    assert busy.output(request()) == (None, "NVRTC was killed by SIGABRT")
    monkeypatch.undo()
    assert busy.output(request())[0] is not None


@pytest.mark.parametrize(
    "program",
    ["import os; os.kill(os.getpid(), 9)", "raise SystemExit(1)", "raise SystemExit(0)"],
)
def test_what_a_lost_helper_leaves_is_compiled_here(
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


def test_idle_helpers_end_and_others_start(busy: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "PROGRAM", IMPATIENT)
    seen = started(monkeypatch)
    first = busy.output(request())
    wait_for_end(seen[0]._process.pid)
    assert busy.output(request())[0] == first[0]
    assert len(seen) == 2


def test_closing_ends_the_helpers(busy: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = started(monkeypatch)
    busy.output(request())
    busy.close()
    assert seen[0].ended


def test_interrupted_requests_end_their_helper(
    busy: Helpers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = started(monkeypatch)

    def interrupted(*_: object) -> nvrtc.Output:
        raise KeyboardInterrupt

    monkeypatch.setattr(Helper, "output", interrupted)
    with pytest.raises(KeyboardInterrupt):
        busy.output(request())
    assert seen[0].ended
    assert not busy._idle


SCRIPT = """
import os
from autotune.compiler.helpers import SHARED
from autotune.compiler.nvrtc import Request
with SHARED._here:
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
