"""The results of compilation: a program, or the reason it failed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from autotune.compiler.cubin import LaunchBounds
from autotune.families.plan import Template


@dataclass(frozen=True)
class Program:
    """A compiled instance of a kernel template.

    Attributes:
        template: what was compiled.
        arch: the target, such as `sm_90`, or `sm_90a` for a template that is specific to it.
        cubin: the machine code.
        symbol: the mangled name of the kernel in the cubin.
        registers: registers a thread.
        shared: static shared memory a block in bytes.
        local: local memory a thread in bytes (stack frame; more than 0 with spills).
        spills: bytes of spill stores and loads.
        barriers: named barriers a block.
        compiler: the compiler and its version, such as `NVRTC 13.0`.
        key: the cache key, which covers source, includes, options, compiler and architecture.
        log: the compiler's output.
    """

    template: Template
    arch: str
    cubin: bytes
    symbol: str
    registers: int
    shared: int
    local: int
    spills: int
    barriers: int
    compiler: str
    key: str
    log: str

    @cached_property
    def bounds(self) -> LaunchBounds:
        """The launches that the kernel allows."""
        return LaunchBounds.of(self.cubin, self.symbol)


@dataclass(frozen=True)
class CompileFailure:
    """A template that did not compile: the compiler's log, and its first error line as `reason`."""

    template: Template
    arch: str
    reason: str
    log: str
