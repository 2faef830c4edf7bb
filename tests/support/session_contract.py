"""The contract of every tuning session, whatever library it calls the driver through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from autotune.cuda import bindings
from autotune.cuda.program import Program
from autotune.device import Device
from autotune.errors import DeviceError
from autotune.families.config import Config
from autotune.families.plan import Argument, ArgumentType, Launch, LaunchPlan, Resources
from autotune.measure.devices import probe
from autotune.measure.runner import Candidate
from autotune.measure.session import Session

PUT = """
template <int N> __global__ void put(double* out, int i, long long l, float f, double d)
{
    if (blockIdx.x || threadIdx.x)
        return;
    out[0] = i, out[1] = l, out[2] = f, out[3] = d, out[4] += N;
}
"""
"""The kernel of the suite for N = 1: stores its arguments, and counts its launches."""
TYPES: tuple[ArgumentType, ...] = ("pointer", "i32", "i64", "f32", "f64")
NUMBERS = (-7, -(2**40), 0.5, 1e-300)
GRID, BLOCK = (3, 1, 1), (64, 1, 1)
SIZE = 2**28


class SessionContract:
    """The tests; a subclass has fixtures for how a session opens, and for the kernel's program."""

    @pytest.fixture
    def opened(self) -> Callable[[int], AbstractContextManager[Session]]:
        raise NotImplementedError

    @pytest.fixture
    def program(self) -> Program:
        raise NotImplementedError

    @pytest.fixture
    def session(
        self, opened: Callable[[int], AbstractContextManager[Session]]
    ) -> Iterator[Session]:
        with opened(0) as session:
            yield session

    def test_device_is_what_the_driver_shows(self, session: Session) -> None:
        assert session.device == probe(0, enter=True)
        major, _, minor = session.driver.partition(".")
        assert (session.index, int(major) >= 12, minor.isdigit()) == (0, True, True)

    @pytest.mark.parametrize("index", [-1, 99])
    def test_absent_gpu_is_refused_with_the_count(
        self, opened: Callable[[int], AbstractContextManager[Session]], index: int
    ) -> None:
        with pytest.raises(DeviceError, match=f"no GPU {index}; the driver shows"):
            opened(index)

    def test_context_is_current_only_within_the_session(
        self, opened: Callable[[int], AbstractContextManager[Session]]
    ) -> None:
        before = current_context()
        with opened(0):
            inside = current_context()
        assert (inside != 0, current_context()) == (True, before)

    def test_stream_is_the_sessions_own(self, session: Session) -> None:
        assert (type(session.stream), session.stream > 2) == (int, True)

    def test_array_comes_back_as_it_was_uploaded(self, session: Session) -> None:
        memory = session.allocate(4000)
        array, copied = np.arange(1000, dtype=np.float32), np.empty(1000, np.float32)
        session.upload(int(memory), array)
        session.download(copied, int(memory))
        assert (copied == array).all()

    def test_copy_on_the_device_comes_back(self, session: Session) -> None:
        source, target = session.allocate(4000), session.allocate(4000)
        array, copied = np.arange(1000, dtype=np.float32), np.empty(1000, np.float32)
        session.upload(int(source), array)
        session.copy(int(target), int(source), 4000)
        session.download(copied, int(target))
        assert (copied == array).all()

    @pytest.mark.parametrize(("width", "value"), [(1, 0x7F), (2, 0x7FED), (4, 0x7FFFDEAD)])
    def test_fill_writes_elements_of_any_width(
        self, session: Session, width: int, value: int
    ) -> None:
        memory, copied = session.allocate(16), np.empty(16 // width, f"u{width}")
        session.fill(int(memory), 0, 4)
        session.fill(int(memory) + width, value, 2, width)
        session.download(copied, int(memory))
        assert list(copied[:4]) == [0, value, value, 0]

    def test_memory_is_free_again_without_its_object(self, session: Session) -> None:
        before = session.free_bytes()
        memory = session.allocate(SIZE)
        while_allocated = session.free_bytes()
        del memory
        assert (before - while_allocated >= SIZE, session.free_bytes() >= before) == (True, True)

    def test_too_large_an_allocation_breaks_nothing(self, session: Session) -> None:
        assert issubclass(session.MemoryError, session.Error)
        with pytest.raises(session.MemoryError):
            session.allocate(2**50)
        assert not session.broken()

    def test_kernel_gets_its_arguments(self, session: Session, program: Program) -> None:
        out = zeros(session)
        kernel = session.load(program, TYPES, 0)
        kernel.enqueue(GRID, BLOCK, int(out), *NUMBERS)
        assert read(session, out) == [*NUMBERS, 1.0]

    def test_step_repeats_its_launch(self, session: Session, program: Program) -> None:
        out = zeros(session)
        kernel = session.load(program, TYPES, 0)
        steps = [kernel.step(GRID, BLOCK, (int(out), n, *NUMBERS[1:])) for n in (1, 2)]
        for step in (*steps, steps[0]):
            step()
        assert read(session, out) == [1.0, *NUMBERS[1:], 3.0]

    def test_refused_launch_is_an_error_that_breaks_nothing(
        self, session: Session, program: Program
    ) -> None:
        out = zeros(session)
        kernel = session.load(program, TYPES, 0)
        with pytest.raises(session.Error):
            kernel.enqueue(GRID, (4096, 1, 1), int(out), *NUMBERS)
        assert (session.broken(), read(session, out)[-1]) == (False, 0.0)

    def test_marks_tell_the_time_between_them(self, session: Session, program: Program) -> None:
        out = zeros(session)
        step = session.load(program, TYPES, 0).step(GRID, BLOCK, (int(out), *NUMBERS))
        step()  # the first launch loads the program
        marks = [session.mark()]
        for launches in (1, 1000):  # 1 % of which is more than the steps of 0.5 us of each time
            for _ in range(launches):
                step()
            marks.append(session.mark())
        marks[-1].synchronize()
        first, second = (start.time_till(end) for start, end in pairwise(marks))
        assert 0 < first < second == pytest.approx(marks[0].time_till(marks[2]) - first, rel=0.01)

    def test_failed_status_is_the_sessions_error(self, session: Session) -> None:
        assert session.checked((0, 5)) == 5
        with pytest.raises(session.Error):
            session.checked(session._bindings.cuDeviceGet(99))

    def test_candidate_runs_all_launches_of_its_plan(
        self, session: Session, program: Program
    ) -> None:
        session.device = ampere(session.device)  # no dependent launches
        out = zeros(session)
        values: tuple[str | float, ...] = ("out", *NUMBERS)
        pairs = zip(TYPES, values, strict=True)
        launch = Launch(
            program.template, GRID, BLOCK, 0, tuple(Argument(type, value) for type, value in pairs)
        )
        config = Config("put", ())
        plan = LaunchPlan(config, (launch, launch), product=0)
        candidate = Candidate(config, plan, (program, program), Resources(64, 24, 0))
        run = session.bind(candidate)({"out": int(out)})
        run()
        run()
        assert read(session, out)[-1] == 4.0


def ampere(device: Device) -> Device:
    """The device as if it were of compute capability 8.0."""
    return replace(device, compute_capability=(8, 0), clusters=None)


def zeros(session: Session) -> Any:
    """Memory for what the kernel stores."""
    memory = session.allocate(8 * len(TYPES))
    session.fill(int(memory), 0, 2 * len(TYPES))
    return memory


def read(session: Session, memory: Any) -> list[float]:
    """The values that the kernel has stored."""
    copied = np.empty(len(TYPES))
    session.download(copied, int(memory))
    return [float(value) for value in copied]


def current_context() -> int:
    """Address of this thread's current context; 0 without one."""
    return int(bindings.initialised().cuCtxGetCurrent()[1])
