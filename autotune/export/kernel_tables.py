"""The tables of templates/driver.c: devices, machine code, PTX and kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from autotune.cuda.program import Program
from autotune.device import Device
from autotune.export.c_text import c_string, comment, numbers, table
from autotune.families.plan import Launch

_WORD_BYTES = 8
_WORDS_A_LINE = 5


@dataclass(frozen=True)
class KernelTables:
    """The kernels of an export as C tables.

    Attributes:
        devices: the devices that the kernels were compiled for.
        launches: every launch with its program.
        ptx: the PTX of programs that have some, by their key.
    """

    devices: Sequence[Device]
    launches: Sequence[tuple[Launch, Program]]
    ptx: Mapping[str, bytes]

    @property
    def programs(self) -> dict[str, Program]:
        """Every program once, by its key."""
        return {program.key: program for _, program in self.launches}

    @property
    def indices(self) -> dict[str, int]:
        """The index of each program in the table of kernels, by its key."""
        return {key: number for number, key in enumerate(self.programs)}

    def text(self) -> str:
        """All tables, in C."""
        programs = self.programs.values()
        portable = [program for program in programs if program.key in self.ptx]
        # After its cubin, a program with PTX has another row, which the first one names.
        rows = {program.key: len(programs) + number for number, program in enumerate(portable)}
        images = [
            *((f"CUBIN_{n}", item, item.cubin) for n, item in enumerate(programs)),
            *((f"PTX_{n}", item, self.ptx[item.key] + b"\0") for n, item in enumerate(portable)),
        ]
        kernels = [
            self._kernel(name, program, code, rows.get(program.key, 0) if n < len(programs) else 0)
            for n, (name, program, code) in enumerate(images)
        ]
        counts = f"DEVICE_COUNT = {len(self.devices)}, WITH_PTX = {int(bool(portable))}"
        return "\n\n".join(
            (
                f"enum {{ {counts} }};",
                table("Device", "DEVICES", map(_device, self.devices)),
                *(_code(*image) for image in images),
                table("Kernel", "KERNELS", kernels),
            )
        )

    def _kernel(self, name: str, program: Program, code: bytes, ptx: int) -> str:
        digest = ", ".join(f"0x{byte:02x}" for byte in sha256(code).digest())
        shared = max(
            launch.shared for launch, launched in self.launches if launched.key == program.key
        )
        last = numbers(shared, shared + program.shared, ptx)
        return f"{{{name}, {len(code)}, {{{digest}}}, {c_string(program.symbol)}, {last}}}"


def _device(device: Device) -> str:
    return f"{{{c_string(device.name)}, {numbers(*device.compute_capability, device.sms)}}}"


def _code(name: str, program: Program, code: bytes) -> str:
    """Machine code or PTX as little-endian words of 8 bytes, which also aligns it."""
    padded = code + bytes(-len(code) % _WORD_BYTES)
    words = [
        f"0x{int.from_bytes(padded[at : at + _WORD_BYTES], 'little'):x}"
        for at in range(0, len(padded), _WORD_BYTES)
    ]
    lines = (
        ", ".join(words[at : at + _WORDS_A_LINE]) for at in range(0, len(words), _WORDS_A_LINE)
    )
    title = comment(f"{program.template.label} for {program.arch}, by {program.compiler}")
    return f"{title}\nstatic const uint64_t {name}[] = {{\n" + ",\n".join(lines) + "};"
