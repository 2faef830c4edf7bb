"""The identity and the limits of a GPU, and a catalogue of known ones."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from autotune.errors import DeviceError
from autotune.problem.precision import PRECISIONS

_MAY_BE_ZERO = {"reserved_shared_per_block", "l2_bytes", "memory_clock"}
# Fused multiply-adds of 16-bit values with fp32 sums that the tensor cores of an SM start a clock,
# without sparsity; what is not listed has what the last one before it has.
_TENSOR_RATES = {
    (7, 0): 512,  # V100 whitepaper: 125 TFLOP/s of 80 SMs at 1530 MHz
    (7, 5): 512,  # Turing whitepaper: Quadro RTX 6000 130.5 (T4 datasheet: 65)
    (8, 0): 1024,  # A100 whitepaper: 312 of 108 SMs at 1410 MHz
    (8, 6): 512,  # GA102 whitepaper: RTX A6000 154.8
    (8, 7): 1024,  # Jetson AGX Orin technical brief: 85 TOP/s of int8 of 16 SMs at 1300 MHz
    (8, 9): 512,  # L40S datasheet: 362 (L4: 121)
    (9, 0): 2048,  # H100 whitepaper: 989.4 of 132 SMs at 1830 MHz
    (10, 0): 4096,  # HGX B200 datasheet: 2250 of 148 SMs
    (12, 0): 512,  # RTX PRO 6000 Blackwell whitepaper: 503.8 of 188 SMs
}
# Cards whose tensor cores do half of that when the sums are fp32: RTX 2080 Ti, 3090, 4090 and 5090
# reach 56.9, 71, 165.2 and 209.5 TFLOP/s by the whitepapers, the L40 181 by its datasheet.
_HALF_RATE = re.compile(r"GeForce|\bL40\b")
_MARKETING = re.compile(r"^(nvidia|geforce|tesla|gtx|rtx)+")


@dataclass(frozen=True)
class Device:
    """What a kernel has to fit into, and how fast it could run there.

    Attributes:
        name: as the driver gives it, such as `NVIDIA H100 80GB HBM3`.
        compute_capability: (major, minor).
        sms: streaming multiprocessors.
        warp_size: threads a warp.
        registers_per_block: 32-bit registers that one block may take (regsPerBlock).
        registers_per_sm: 32-bit registers of an SM.
        shared_per_block: bytes a block gets without asking (sharedMemPerBlock).
        shared_per_block_optin: bytes a block gets through the opt-in attribute.
        shared_per_sm: bytes of shared memory of an SM.
        reserved_shared_per_block: bytes the driver takes of each block's share.
        threads_per_block: largest block.
        threads_per_sm: most resident threads.
        blocks_per_sm: most resident blocks.
        l2_bytes: size of the L2 cache.
        memory_bytes: device memory.
        sm_clock: boost clock in Hz.
        memory_clock: memory clock in Hz, as the driver counts it (not the data rate); 0 if
            unknown.
        memory_bandwidth: peak bytes a second of device memory.
        peak_fp32: peak fp32 FLOP/s outside the tensor cores (a fused multiply-add counts two).
        granularity: allocation unit of registers and shared memory where the device has one of
            its own (the textbook devices); None takes the architecture's.
    """

    name: str
    compute_capability: tuple[int, int]
    sms: int
    warp_size: int
    registers_per_block: int
    registers_per_sm: int
    shared_per_block: int
    shared_per_block_optin: int
    shared_per_sm: int
    reserved_shared_per_block: int
    threads_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    l2_bytes: int
    memory_bytes: int
    sm_clock: int
    memory_clock: int
    memory_bandwidth: float
    peak_fp32: float
    granularity: int | None = None

    @property
    def slug(self) -> str:
        """The name as part of a path: lower case, other characters than a-z and 0-9 as `-`."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def arch(self) -> str:
        """The compiler's target, such as `sm_90`."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    def tensor_rate(self, compute: str) -> float | None:
        """Fused multiply-adds that the tensor cores of an SM start a clock; see `tensor_rate`."""
        rate = tensor_rate(self.compute_capability, compute)
        return rate / 2 if rate and _HALF_RATE.search(self.name) else rate

    def peak(self, compute: str) -> float:
        """Most FLOP/s (2 M N K of a product over its time) in a precision at the boost clock.

        Of the tensor cores where they are the faster ones, else `peak_fp32`; `tf32x3` makes three
        products of each. NVIDIA states the tensor cores' peak at a lower clock: for an H100 SXM
        989.4 TFLOP/s in bf16, at 1830 MHz instead of 1980.
        """
        rate = (self.tensor_rate(compute) or 0.0) / PRECISIONS[compute].products
        return max(self.peak_fp32, self.sms * rate * 2.0 * self.sm_clock)

    def to_json(self) -> dict[str, object]:
        """The fields as JSON values; `compute_capability` becomes a list of two numbers."""
        return asdict(self) | {"compute_capability": list(self.compute_capability)}

    @classmethod
    def from_json(cls, mapping: Mapping[str, object]) -> Device:
        """Reads `to_json` back.

        Raises:
            DeviceError: for unknown, missing or mistyped fields, and for numbers that no device
                has (below 0, or 0 where that means nothing); the message names them.
        """
        known = {field.name: field for field in fields(cls)}
        required = {name for name, field in known.items() if field.default is MISSING}
        if unknown := sorted(mapping.keys() - known.keys()):
            raise DeviceError(f"unknown device fields: {', '.join(unknown)}; remove them")
        if missing := sorted(required - mapping.keys()):
            raise DeviceError(f"missing device fields: {', '.join(missing)}; add them")
        values: dict[str, Any] = {
            name: _checked(name, str(known[name].type), value) for name, value in mapping.items()
        }
        return cls(**values)


def fp32_lanes(compute_capability: tuple[int, int]) -> int:
    """Fp32 units of an SM: each starts one fused multiply-add a clock.

    Source: CUDA C++ Programming Guide, throughput of native arithmetic instructions (5.0 on).
    """
    return 64 if compute_capability[0] == 7 or compute_capability in ((6, 0), (8, 0)) else 128


def tensor_rate(compute_capability: tuple[int, int], compute: str) -> float | None:
    """Fused multiply-adds that the tensor cores of an SM start a clock, dense, with fp32 sums.

    Of the products themselves: `tf32x3` has the rate of `tf32`, half of the 16-bit one. None if
    there are none for the precision: for any before 7.0 and for `f32`, for `tf32` and `bf16`
    before 8.0. Some cards of an architecture have half the rate: `Device.tensor_rate` knows them.

    Source: NVIDIA's architecture whitepapers and datasheets, as stated at each rate.
    """
    precision = PRECISIONS[compute]
    if precision.tensor_rate is None or compute_capability < precision.compute_capability:
        return None
    rate = _TENSOR_RATES[max(known for known in _TENSOR_RATES if known <= compute_capability)]
    return rate * precision.tensor_rate


def catalogue() -> Mapping[str, Device]:
    """The known devices by short key, such as `h100-sxm`.

    The source of each entry's figures stands beside it in `data/devices.json`.
    """
    return {key: Device.from_json(entry["device"]) for key, entry in _entries().items()}


def find(text: str) -> Device:
    """The catalogue's device of that key, alias or driver name.

    Case, spaces, dashes and the prefixes NVIDIA, GeForce, Tesla, GTX and RTX do not matter.
    A bare `h100` is the SXM module and a bare `a100` the one of 80 GB.

    Raises:
        DeviceError: if no device is called that; the message lists near matches.
    """
    entries = _entries()
    keys = {
        _folded(name): key
        for key, entry in entries.items()
        for name in (key, entry["device"]["name"], *entry["aliases"])
    }
    if (wanted := _folded(text)) in keys:
        return Device.from_json(entries[keys[wanted]]["device"])
    near = dict.fromkeys(keys[name] for name in difflib.get_close_matches(wanted, keys, n=5))
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise DeviceError(
        f"unknown device {text!r}; {hint}give one of {', '.join(entries)}, "
        "or a JSON file as `autotune device --json` prints it"
    )


def load(text: str) -> Device:
    """A device from a JSON file (a path with a `/` or ending in `.json`) or by `find`.

    Raises:
        DeviceError: if the file cannot be read or holds something else, or the name is unknown.
    """
    if "/" not in text and not text.endswith(".json"):
        return find(text)
    try:
        content = json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DeviceError(f"cannot read the device file {text}: {error}") from error
    if not isinstance(content, dict):
        raise DeviceError(
            f"{text}: holds no JSON object; give what `autotune device --json` prints"
        )
    try:
        return Device.from_json(content)
    except DeviceError as error:
        raise DeviceError(f"{text}: {error}") from error


def _entries() -> dict[str, Any]:
    data = resources.files("autotune") / "data" / "devices.json"
    entries: dict[str, Any] = json.loads(data.read_text(encoding="utf-8"))
    return entries


def _folded(text: str) -> str:
    return _MARKETING.sub("", re.sub(r"[^a-z0-9]", "", text.lower()))


def _checked(name: str, kind: str, value: object) -> object:
    if kind == "str" and isinstance(value, str) and value:
        return value
    if kind == "int | None" and value is None:
        return None
    if kind == "tuple[int, int]" and isinstance(value, (list, tuple)) and len(value) == 2:
        return tuple(_number(name, "int", part, at_least=0) for part in value)
    if kind in ("int", "int | None", "float"):
        return _number(name, kind, value, at_least=0 if name in _MAY_BE_ZERO else 1)
    raise DeviceError(f"device field {name} is {value!r}; it must be {kind}")


def _number(name: str, kind: str, value: object, *, at_least: int) -> int | float:
    allowed = (int, float) if kind == "float" else (int,)
    if isinstance(value, bool) or not isinstance(value, allowed) or not math.isfinite(value):
        raise DeviceError(f"device field {name} is {value!r}; it must be {kind}")
    if value < at_least:
        raise DeviceError(f"device field {name} is {value}; it must be at least {at_least}")
    return float(value) if kind == "float" else value
