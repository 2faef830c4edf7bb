"""A runner and a compiler that need no hardware."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources, Template
from autotune.measure.measurement import Energy, Evidence, Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.recording import Origin
from autotune.measure.runner import Candidate
from autotune.measure.targets import Target
from autotune.problem import Problem
from support.sample_records import H100, SQUARE

ORIGIN = Origin(driver="13.0", compiler="NVRTC 13.5", source="5e1f")
UNKNOWN = Origin("", "", "")

Outcome = Callable[[Config], Measurement | Failure]


def tiled(width: int, specialized: int = 1) -> Config:
    """A configuration of the square tiled kernel."""
    return Config.of("tiled", {"tile_width": width, "specialized": specialized})


def by_width(config: Config) -> Measurement:
    """Microseconds of the tiled kernel, least at TILE_WIDTH 23."""
    distance = abs(config.integer("tile_width") - 23)
    return Measurement(100.0 + 10 * distance + config.integer("specialized"), 0.5, 20)


def crash(config: Config) -> Failure:
    """The outcome of every candidate on a broken GPU."""
    return Failure("crash", f"{config}: illegal access")


class FakeRunner:
    """Answers with the outcome that a function gives for a configuration, and lists its calls.

    Attributes:
        measured: configurations in the order of `measure`.
        bests: the best times told with each of them.
        objectives: the objective of each of them.
        rematched: configurations in the order of `rematch`.
        examined: configurations in the order of `examine`.
        metered: configurations in the order of `energies`.

    Args:
        outcome: the outcome of `measure` for a configuration.
        again: the outcome of `rematch`; by default the same.
        examination: the outcome of `examine`, if a failure; by default as `again`.
        recorded: the only configurations that can be measured; None for any.
        evidence: the evidence of the times.
        device: the device.
        energy: the energy of a configuration; None for no energies.
    """

    baseline_fault = ""

    def __init__(
        self,
        outcome: Outcome = by_width,
        *,
        again: Outcome | None = None,
        examination: Outcome | None = None,
        recorded: Sequence[Config] | None = None,
        evidence: Evidence = "measured",
        device: Device = H100,
        energy: Callable[[Config], Energy | Failure] | None = None,
    ) -> None:
        self._outcome = outcome
        self._again = again or outcome
        self._examination = examination or self._again
        self._recorded = recorded
        self._evidence: Evidence = evidence
        self._device = device
        self._energy = energy
        self.measured: list[Config] = []
        self.bests: list[BestTimes | None] = []
        self.objectives: list[Objective] = []
        self.rematched: list[Config] = []
        self.examined: list[Config] = []
        self.metered: list[Config] = []

    @property
    def device(self) -> Device:
        return self._device

    @property
    def evidence(self) -> Evidence:
        return self._evidence

    def known(self) -> Sequence[Config] | None:
        return self._recorded

    def resources(self, config: Config) -> Resources | None:
        if self._recorded is None:
            return None
        return registry.find(config.family).estimate(config, SQUARE)

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        self.measured.append(candidate.config)
        self.bests.append(best)
        self.objectives.append(objective)
        return self._outcome(candidate.config)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        self.rematched += [candidate.config for candidate in candidates]
        return [self._again(candidate.config) for candidate in candidates]

    def examine(self, candidate: Candidate) -> Failure | None:
        self.examined.append(candidate.config)
        outcome = self._examination(candidate.config)
        return outcome if isinstance(outcome, Failure) else None

    def energy_fault(self) -> str | None:
        return "this fake has no energies" if self._energy is None else None

    def energies(self, candidates: Sequence[Candidate]) -> list[Energy | Failure]:
        assert self._energy is not None
        self.metered += [candidate.config for candidate in candidates]
        return [self._energy(candidate.config) for candidate in candidates]

    def baseline(self) -> Measurement | None:
        return None if self.baseline_fault else Measurement(90.0)

    @property
    def baseline_ready(self) -> bool:
        return True

    def close(self) -> None:
        """There is nothing to release."""


class OpenFake:
    """Stands in for `TargetOpener`, and for each of its instances: every problem has one runner."""

    def __init__(self, runner: FakeRunner) -> None:
        self._runner = runner

    def __call__(self, _device: object) -> OpenFake:
        return self

    def __enter__(self) -> OpenFake:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def target(self, _problem: Problem) -> Target:
        return Target(self._runner, ORIGIN)


class LateRunner(FakeRunner):
    """A runner with a vendor library that is never ready unless it is waited for.

    Attributes:
        vendor_error: the library's relative error.
    """

    vendor_error = 1e-6

    def baseline(self) -> Measurement:
        return Measurement(90.0, relative_error=self.vendor_error)

    @property
    def baseline_ready(self) -> bool:
        return False


def program(
    template: Template, arch: str, *, registers: int = 32, local: int = 0, spills: int = 0
) -> Program:
    """A program without a cubin, with 16 bytes of static shared memory."""
    return Program(
        template=template,
        arch=arch,
        cubin=b"",
        symbol=template.kernel,
        registers=registers,
        shared=16,
        local=local,
        spills=spills,
        barriers=1,
        compiler=ORIGIN.compiler,
        key=template.label,
        log="",
    )


def cubin(instruction: int) -> bytes:
    """A cubin with one instruction."""
    names = b"\0.text.k\0.names\0"
    text = struct.pack("<QQ", instruction, 0)
    body = bytes(64) + text + names
    headers = [(0, 0, 0, 0, 0, 0), (1, 1, 0, 0, 64, 16), (9, 3, 0, 0, 80, len(names))]
    table = b"".join(struct.pack("<IIQQQQ", *row) + bytes(24) for row in headers)
    start = struct.pack("<16sQQQQ", b"\x7fELF", 0, 0, 0, 0)[:0x28]
    head = start + struct.pack("<Q", len(body)) + bytes(0x3A - 0x30) + struct.pack("<HHH", 64, 3, 2)
    return head + body[len(head) :] + table


def compiled(template: Template, arch: str) -> Program | CompileFailure:
    """A compiler that compiles every template at once."""
    return program(template, arch)


def uncompiled(template: Template, arch: str) -> Program | CompileFailure:
    """A compiler that must not be called."""
    raise AssertionError(f"{template.label} was compiled for {arch}")
