"""The contents of an export of user kernels: recorded calls, compiled for their devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.export.portable import portable_ptx
from autotune.families.plan import Launch, Template
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord
from autotune.records.kernel_record import KernelEntry
from autotune.records.kernel_source import KernelSource
from autotune.runners.objective import HOT, Objective

Build = Callable[[Template, str, Path, tuple[Path, ...]], Program | CompileFailure]
"""Compiles a template for an architecture, from a folder with folders of headers."""
BuildPtx = Callable[[Template, str, Path, tuple[Path, ...]], bytes | CompileFailure]
"""Compiles a template to PTX in the same way."""
Unpack = Callable[[KernelSource], AbstractContextManager[tuple[Path, tuple[Path, ...]]]]


@dataclass(frozen=True)
class ExportedKernel:
    """A recorded call of a user kernel on a device, compiled.

    Attributes:
        record: the record.
        entry: the exported configuration.
        launch: its launch.
        program: its machine code.
    """

    record: KernelRecord
    entry: KernelEntry
    launch: Launch
    program: Program

    @property
    def call(self) -> KernelCall:
        """The kernel's name and arguments."""
        return self.record.call

    @property
    def device(self) -> Device:
        """The device it was tuned on."""
        return self.record.device


@dataclass(frozen=True)
class KernelLibrary:
    """User kernels to export, under a name; `ptx` is that of programs by their key."""

    name: str
    kernels: tuple[ExportedKernel, ...]
    ptx: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every device once."""
        return tuple(dict.fromkeys(kernel.device for kernel in self.kernels))

    @property
    def launches(self) -> tuple[tuple[Launch, Program], ...]:
        """Every launch with its program."""
        return tuple((kernel.launch, kernel.program) for kernel in self.kernels)

    @property
    def calls(self) -> dict[KernelCall, tuple[ExportedKernel, ...]]:
        """The kernels of each call, one for each device."""
        calls = dict.fromkeys(kernel.call for kernel in self.kernels)
        return {
            call: tuple(kernel for kernel in self.kernels if kernel.call == call) for call in calls
        }

    @property
    def functions(self) -> dict[KernelCall, str]:
        """The function of each call: the library's name, with a number if there are several."""
        calls = self.calls
        if len(calls) == 1:
            return dict.fromkeys(calls, self.name)
        return {call: f"{self.name}_{number}" for number, call in enumerate(calls)}

    @property
    def programs(self) -> dict[str, Program]:
        """Every program once, by its key."""
        return {kernel.program.key: kernel.program for kernel in self.kernels}


def gather_kernels(
    name: str,
    records: Sequence[KernelRecord],
    build: Build,
    unpack: Unpack,
    objective: Objective = HOT,
    ptx: BuildPtx | None = None,
) -> KernelLibrary:
    """Compiles the best configuration of each record for its device.

    Args:
        name: the name of the library.
        records: what to export.
        build: compiles a template.
        unpack: unpacks the sources of a record.
        objective: the time that chooses a configuration.
        ptx: compiles a template to PTX, which is added for later GPUs; None adds none.

    Raises:
        NotFoundError: if a record does not have its source.
        AutotuneError: if a kernel does not compile.
    """
    kernels = [_compiled(record, build, unpack, objective) for record in records]
    library = KernelLibrary(name, tuple(sorted(kernels, key=lambda kernel: kernel.record.title)))
    if ptx is None:
        return library
    sources = {kernel.program.key: kernel.entry.launchable().source for kernel in kernels}

    def compile(program: Program) -> bytes | CompileFailure:
        with unpack(sources[program.key]) as places:
            return ptx(program.template, program.arch, *places)

    return replace(library, ptx=portable_ptx(library.programs.values(), compile))


def _compiled(
    record: KernelRecord, build: Build, unpack: Unpack, objective: Objective
) -> ExportedKernel:
    entry = record.best_by(objective)
    assert isinstance(entry, KernelEntry)
    recorded = entry.launchable()
    launch, arch = recorded.plan(entry.config).main, record.device.arch
    with unpack(recorded.source) as places:
        program = build(launch.template, arch, *places)
    if isinstance(program, CompileFailure):
        raise AutotuneError(f"{entry.config} does not compile for {arch}: {program.reason}")
    return ExportedKernel(record, entry, launch, program)
