"""The energy of runs: NVML's counter, and the meter on a board that only advances a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support import fake_gpu, fake_nvml, fake_pycuda
from support.clock_session import ClockSession, Event
from support.fake_gpu import FakeGpu
from support.fake_nvml import BUS, FakeNvml

from autotune.errors import MissingError, RunnerError
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.measure.energy import EnergyMeter, open_counter
from autotune.measure.gpu_runner import GpuRunner
from autotune.measure.measurement import Energy, Failure
from autotune.measure.runner import Candidate
from autotune.measure.session import BindingsSession, PyCudaSession, Run, Session
from autotune.measure.timing import Timer, WarmRun
from autotune.problem import Problem


def test_counter_states_energy_and_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.install(FakeNvml(), monkeypatch)
    counter = open_counter(BUS)
    first = counter.millijoules()
    assert (counter.millijoules() - first, counter.clock_mhz()) == (1000, 1755.0)


@pytest.mark.parametrize(
    ("nvml", "message"),
    [
        (None, r'Python package of NVML .* run `pip install "tile-autotune\[energy\]"`'),
        (FakeNvml("nvmlInit"), rf"NVML does not show the GPU at {BUS}: Not Supported; libnvidia"),
        (FakeNvml("nvmlDeviceGetHandleByPciBusId"), "the driver capability `utility`"),
        (FakeNvml(partitioned=True), r"is partitioned \(MIG\), and its counter"),
        (
            FakeNvml("nvmlDeviceGetTotalEnergyConsumption"),
            "no counter of energy for the GPU at .*: Not Supported; GPUs since compute capability",
        ),
    ],
    ids=["no package", "no library", "hidden", "MIG", "no counter"],
)
def test_missing_counter_says_what_is_missing(
    nvml: FakeNvml | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml.install(nvml, monkeypatch)
    with pytest.raises(MissingError, match=message):
        open_counter(BUS)


def test_gpu_without_partitions_has_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.install(FakeNvml("nvmlDeviceGetMigMode"), monkeypatch)
    assert open_counter(BUS).millijoules() > 0


@pytest.mark.parametrize("name", ["millijoules", "clock_mhz"])
def test_counter_that_fails_later_is_no_candidates_fault(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = FakeNvml()
    fake_nvml.install(nvml, monkeypatch)
    counter = open_counter(BUS)
    nvml.missing |= {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetClockInfo"}
    with pytest.raises(RunnerError, match=r"NVML .*: Not Supported"):
        getattr(counter, name)()


@pytest.mark.parametrize("kind", [PyCudaSession, BindingsSession])
def test_session_finds_its_gpu_by_the_pci_address(
    kind: type[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pycuda.install(fake_gpu.install(FakeGpu(), monkeypatch), monkeypatch)
    fake_nvml.install(FakeNvml(), monkeypatch)
    with kind(0) as session:
        assert open_counter(session.pci_address()).clock_mhz() == 1755.0


IDLE_W = 80.0


class BoardMark(Event):
    """The end of what was enqueued before it."""

    def __init__(self, board: Board) -> None:
        super().__init__(board.now + board.backlog_us)
        self._board = board

    def synchronize(self) -> None:
        self._board.wait(self.now - self._board.now)


class Board(ClockSession):
    """A session, a clock of the host and a counter of energy in one.

    The counter moves every `period_us` to the energy of that moment.

    Args:
        period_us: microseconds between two movements.
        warming_w: watts by which every second raises the power.
        look_us: microseconds that a look at the counter takes.
    """

    def __init__(
        self, period_us: float = 100e3, warming_w: float = 0.0, look_us: float = 0.0
    ) -> None:
        super().__init__(l2_bytes=2**20)
        self._period, self._warming, self._look = period_us, warming_w, look_us
        self._joules, self._shown, self._next = 0.0, 0.0, period_us
        self._enqueued: deque[tuple[float, float]] = deque()

    @property
    def backlog_us(self) -> float:
        return sum(time_us for time_us, _ in self._enqueued)

    def enqueue(self, time_us: float, power_w: float) -> None:
        self._enqueued.append((time_us, power_w))

    def wait(self, time_us: float) -> None:
        """Lets time pass: the board works off what was enqueued, then idles."""
        while self._enqueued and time_us > 0:
            needed, power_w = self._enqueued.popleft()
            spent = min(needed, time_us)
            self._work(spent, power_w)
            time_us -= spent
            if needed > spent:
                self._enqueued.appendleft((needed - spent, power_w))
        self._work(time_us, IDLE_W)

    def work(self, time_us: float, power_w: float) -> None:
        self.synchronize()
        self._work(time_us, power_w)

    def _work(self, time_us: float, power_w: float) -> None:
        while time_us > 0:
            step = min(time_us, self._next - self.now)
            self._joules += (power_w + self._warming * self.now / 1e6) * step / 1e6
            self.now, time_us = self.now + step, time_us - step
            if self.now >= self._next:
                self._shown, self._next = self._joules, self._next + self._period

    def mark(self) -> Event:
        return BoardMark(self)

    def synchronize(self) -> None:
        self.wait(self.backlog_us)

    def fill(self, *_: Any) -> None:
        self.work(30.0, IDLE_W)

    def seconds(self) -> float:
        return self.now / 1e6

    def millijoules(self) -> int:
        self.wait(self._look)
        return int(1e3 * self._shown)

    def clock_mhz(self) -> float:
        return 1_700.0 if self.now % 200e3 < 100e3 else 1_800.0


class Graphs(Timer):
    """A timer whose graphs are one long piece of work; before each the board idles."""

    @contextmanager
    def replayable(self, run: Run, runs: int) -> Iterator[Run]:
        assert isinstance(run, Kernel)
        run.board.work(300e3, IDLE_W)
        yield lambda: run.board.enqueue(runs * run.time_us, run.power_w)


class Kernel:
    """A run that takes `time_us` at `power_w`."""

    def __init__(self, board: Board, time_us: float, power_w: float) -> None:
        self.board, self.time_us, self.power_w = board, time_us, power_w

    def __call__(self) -> None:
        self.board.work(self.time_us, self.power_w)


def metered(board: Board, *kernels: tuple[float, float]) -> list[Energy]:
    """The energies of runs that take (microseconds, watts)."""
    session: Any = board
    runs = [Kernel(board, *kernel) for kernel in kernels]
    meter = EnergyMeter(session, Graphs(session), session, board.seconds)
    return meter.measure([WarmRun(run, run.time_us) for run in runs])


@pytest.mark.parametrize("period_us", [20e3, 100e3])
@pytest.mark.parametrize(
    ("time_us", "power_w"), [(5.0, 350.0), (180.0, 690.0), (40e3, 500.0), (1.3e6, 600.0)]
)
def test_energy_is_power_times_time(period_us: float, time_us: float, power_w: float) -> None:
    (energy,) = metered(Board(period_us), (time_us, power_w))
    assert energy.joules == pytest.approx(power_w * time_us / 1e6, rel=0.01)
    assert energy.power_w == pytest.approx(power_w, rel=0.01)
    assert energy.spread_j <= 0.01 * energy.joules


@pytest.mark.parametrize("look_us", [300.0, 3_700.0])
def test_board_has_work_while_the_counter_is_looked_at(look_us: float) -> None:
    (energy,) = metered(Board(look_us=look_us), (459.0, 500.0))
    assert energy.power_w == pytest.approx(500.0, rel=0.01)
    assert energy.joules == pytest.approx(0.2295, rel=0.03)


def test_each_run_has_its_own_energy() -> None:
    energies = metered(Board(), (200.0, 400.0), (100.0, 650.0))
    assert [energy.joules for energy in energies] == pytest.approx([0.08, 0.065], rel=0.01)


def test_warming_board_favours_no_run() -> None:
    energies = metered(Board(warming_w=10.0), *[(200.0, 500.0)] * 5)
    joules = [energy.joules for energy in energies]
    assert max(joules) <= 1.005 * min(joules)
    assert max(energy.spread_j for energy in energies) > 0.02 * min(joules)


def test_clock_is_the_mean_over_the_windows() -> None:
    (energy,) = metered(Board(), (200.0, 500.0))
    assert 1_700 < energy.clock_mhz < 1_800


@pytest.mark.parametrize("seconds", [1.0, 3.0])
def test_measuring_a_run_takes_two_seconds(seconds: float) -> None:
    board = Board()
    metered(board, *[(200.0, 500.0)] * int(seconds))
    idle = 0.3 * 2 * 2 * seconds  # what the fake adds before each of the graphs
    assert board.seconds() - idle <= 2 * seconds


def test_counter_that_stands_still_is_an_error() -> None:
    with pytest.raises(RunnerError, match="energy stands still at 0 J for 5 s of work"):
        metered(Board(period_us=1e12), (2_000.0, 500.0))


def test_failing_counter_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Board) -> int:
        raise RunnerError("the GPU is lost")

    monkeypatch.setattr(Board, "millijoules", failing)
    with pytest.raises(RunnerError, match="the GPU is lost"):
        metered(Board(), (2_000.0, 500.0))


# Energies from worker processes: in order, with the baseline's, and in spite of crashes


FAKE = "support.worker_benches:fake"


def candidate(act: str) -> Candidate:
    config = Config.of("fake", {"act": act})
    return Candidate(config, LaunchPlan(config, ()), (), Resources(32, 32, 0))


@pytest.fixture
def runner() -> Iterator[GpuRunner]:
    runner = GpuRunner(Problem(64, 64, 64), bench=FAKE, baseline_bench=FAKE, time_limit=30.0)
    yield runner
    runner.close()


def test_energies_of_candidates_and_baseline(runner: GpuRunner) -> None:
    first, second = candidate("count"), candidate("count")
    assert runner.baseline() is not None
    runner.rematch([first])
    assert runner.energy_fault() is None
    energies = runner.energies([first, second])
    assert [energy.joules for energy in energies if isinstance(energy, Energy)] == [2.0, 3.0]
    baseline = runner.baseline()
    assert baseline is not None
    assert (baseline.time_us, baseline.energy and baseline.energy.joules) == (20.0, 20.0)
    # A crash costs the energy of one candidate, a failing counter that of all.
    energies = runner.energies([first, candidate("kill"), second])
    assert [type(energy) for energy in energies] == [Energy, Failure, Energy]
    with pytest.raises(RunnerError, match="the counter stands still"):
        runner.energies([first, candidate("still")])
