"""Kernel Tuner's files: caches (`cache=`) and results in the T4 format (`store_output_file`).

Both list configurations with times in milliseconds, or why there are none; neither has the
arguments of the kernel. A cache is JSON that Kernel Tuner leaves without its closing braces, an
entry a line (`kernel_tuner/util.py`, versions 1.0 to 1.5). T4 is the format of the auto-tuning
community (`kernel_tuner/schema/T4`), whose files are called `DEVICE_T4.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple, TypeVar

import msgspec

from autotune.device import Device, find
from autotune.errors import DeviceError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.files import limits
from autotune.files.decoding import shown
from autotune.files.reading import expanded, is_compressed
from autotune.measure.measurement import Estimate, Failure, Measurement, Stage

Outcome = Measurement | Failure
Row = tuple[Config, Resources, Outcome]
Tried = tuple[dict[str, Any], Outcome | None]
"""The parameters of a configuration and its outcome; None if a constraint refused it."""

_STAGES: Mapping[str, Stage | None] = {
    **{"InvalidConfig": None, "CompilationFailedConfig": "compile"},
    **{"RuntimeFailedConfig": "launch", "ErrorConfig": "launch"},
    **{"constraints": None, "compile": "compile", "runtime": "launch"},
    **{"timeout": "timeout", "correctness": "verify"},
}
"""The stage of a cache's errors, and of the `invalidity` of T4; None: a constraint."""

_INVALIDITIES: Mapping[Stage, str] = {
    **{"compile": "compile", "resources": "constraints", "timeout": "timeout"},
    **{"verify": "correctness", "accuracy": "correctness"},
}
"""The `invalidity` of a stage; `runtime` of the others."""

_HEAD = 2**16
"""Bytes at the beginning of a file that tell its kind."""

T = TypeVar("T")


class KernelTunerFile(NamedTuple):
    """The content of a file; the kernel is called `kernel` where the file does not name it."""

    kernel: str
    device: Device
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class _Cache:
    device_name: str
    tune_params_keys: list[str]
    cache: dict[str, dict[str, Any]]
    kernel_name: str = ""


@dataclass(frozen=True)
class _Result:
    configuration: dict[str, Any]
    times: dict[str, Any]
    invalidity: str
    measurements: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Results:
    results: list[_Result]
    metadata: dict[str, Any] = field(default_factory=dict)


def read(data: bytes, name: str) -> KernelTunerFile | None:
    """The content of a file of Kernel Tuner, compressed or not; None if it is of another kind.

    Args:
        data: the bytes of the file.
        name: the file's name, which names the device of T4 results.

    Raises:
        ValueError: if it is broken, or no configuration has a time.
    """
    text = expanded(data, limits.RECORDING) if is_compressed(data) else data
    if b'"tune_params_keys"' in text[:_HEAD]:
        cache = _closed(text)
        named, device = cache.kernel_name, cache.device_name
        configs = [_entry(entry, cache.tune_params_keys) for entry in cache.cache.values()]
    elif b'"results"' in text[:_HEAD]:
        results = _decoded(text, _Results)
        fields = {key: str(value) for key, value in results.metadata.items()}
        stem = re.sub(r"(_T4|[-_]results)?\.json(\.gz|\.xz)?$", "", name).replace("_", " ")
        named, device = fields.get("kernel_name", ""), fields.get("device_name", stem)
        factor = _microseconds(fields.get("timeunit", "milliseconds"))
        configs = [_tried(result, factor) for result in results.results]
    else:
        return None
    kernel = (re.findall(r"[A-Za-z_]\w*", named.partition("<")[0]) or ["kernel"])[-1]
    rows = tuple(_row(kernel, values, made) for values, made in configs if made is not None)
    if len({frozenset(config.values) for config, _, _ in rows}) > 1:
        raise ValueError("its configurations have different parameters")
    if not any(isinstance(outcome, Measurement) for _, _, outcome in rows):
        raise ValueError("no configuration has a time; only searches for times can be replayed")
    return KernelTunerFile(kernel, _device(device), rows)


def _decoded(text: bytes, kind: type[T]) -> T:
    """The typed value of a text; NaN and infinities, which Kernel Tuner writes, are null."""
    if b"NaN" in text or b"Infinity" in text:
        text = re.sub(rb"(?<=[:\[,\s])(?:NaN|-?Infinity)(?=[\s,\]}])", b"null", text)
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as error:
        raise ValueError(f"it nests too deeply: {error}") from error


def _closed(text: bytes) -> _Cache:
    """A cache; an unfinished one gets its closing braces, without a torn last line."""
    whole = text.rstrip()
    if re.search(rb"\}\s*\}\s*\}\Z", whole[-100:]) is None:
        if not whole.endswith((b"}", b"},", b"{")):
            whole = whole[: whole.rfind(b"\n")].rstrip()
        whole = whole.removesuffix(b",") + b"}}"
    return _decoded(whole, _Cache)


def _entry(entry: dict[str, Any], names: list[str]) -> Tried:
    """An entry of a cache."""
    if missing := [name for name in names if name not in entry]:
        raise ValueError(f"an entry lacks the parameter {missing[0]}")
    parameters = {name: entry.pop(name) for name in names}
    for value in entry.values():
        if isinstance(value, str) and value.endswith("Config") and value in _STAGES:
            return parameters, _failure(value)
    return parameters, _measured(entry.get("times") or entry.get("time"), 1e3)


def _tried(result: _Result, factor: float) -> Tried:
    """A result of T4 whose samples have a unit of `factor` microseconds."""
    if result.invalidity != "correct":
        return result.configuration, _failure(result.invalidity)
    samples = result.times.get("runtimes")
    for measured in result.measurements if not samples else ():
        if measured.get("name") == "time":
            samples, unit = measured.get("value"), measured.get("unit")
            factor = _microseconds(str(unit)) if unit else factor
    return result.configuration, _measured(samples, factor)


def _microseconds(unit: str) -> float:
    """The microseconds of `s`, `ms`, `us` or their names; other units are milliseconds."""
    return 1e6 if unit.startswith("s") else 1.0 if unit.startswith(("us", "mic")) else 1e3


def _failure(name: str) -> Failure | None:
    stage = _STAGES.get(name, "launch")
    return stage and Failure(stage, f"{name} in Kernel Tuner")


def _measured(times: Any, factor: float) -> Outcome:
    """The median of a list of samples, or a single time; a failure without (before version 1.0 a
    failure had 1e20)."""
    samples = [
        factor * time
        for time in (times if isinstance(times, list) else [times])
        if isinstance(time, int | float) and 0 < factor * time < 1e12
    ]
    if not samples:
        return Failure("launch", "no time in Kernel Tuner")
    estimate = Estimate.of(samples)
    return Measurement(estimate.median, estimate.spread, estimate.samples)


def _row(kernel: str, parameters: Mapping[str, Any], outcome: Outcome) -> Row:
    """The row of a configuration. Registers and shared memory are unknown, and so are threads but
    for parameters of Kernel Tuner's names."""
    for name, value in parameters.items():
        number = isinstance(value, int | float) and abs(value) < 1e15
        if not number and not isinstance(value, str):
            raise ValueError(f"{name} is {shown(value)}; it must be a number or a text")
    plain = {
        name: int(value) if isinstance(value, bool) else value for name, value in parameters.items()
    }
    config = Config.of(kernel, plain)
    config.check_plain()
    sizes = (plain.get(f"block_size_{axis}", 1) for axis in "xyz")
    threads = prod(size for size in sizes if isinstance(size, int))
    return config, Resources(min(max(threads, 1), 1024), 0, 0), outcome


def _device(name: str) -> Device:
    """The device of a name; one that the catalogue lacks has limits that reject nothing."""
    try:
        return find(name)
    except DeviceError:
        limiting = find("h100")
        plain = re.sub(r"[^\w .()+-]", " ", name).strip()[:150] or "unknown"
        return replace(limiting, name=f"{plain} (limits of {limiting.name})")


def t4(rows: Iterable[Row], *, device: str, kernel: str) -> dict[str, Any]:
    """Trials as T4 results, JSON data; the device and the kernel are in `metadata`."""
    results = [_t4_result(*row) for row in rows]
    metadata = {"timeunit": "milliseconds", "device_name": device, "kernel_name": kernel}
    return {"results": results, "schema_version": "1.0.0", "metadata": metadata}


def _t4_result(config: Config, resources: Resources, outcome: Outcome) -> dict[str, Any]:
    values: list[tuple[str, float, str]] = [
        ("registers", resources.registers, "per thread"),
        ("shared_memory", resources.shared, "bytes"),
        ("local_memory", resources.local, "bytes"),
    ]
    invalidity, times = "correct", list[float]()
    if isinstance(outcome, Failure):
        invalidity = _INVALIDITIES.get(outcome.stage, "runtime")
    else:
        times = [outcome.time_us / 1e3]
        values += [("time", times[0], "ms"), ("time_spread", outcome.spread_us / 1e3, "ms")]
        if outcome.cold_us is not None:
            values += [("time_cold", outcome.cold_us / 1e3, "ms")]
        if outcome.energy is not None:
            values += [("energy", outcome.energy.joules, "J")]
    return {
        "configuration": config.values,
        "objectives": ["time"],
        "times": {"runtimes": times},
        "invalidity": invalidity,
        "correctness": int(invalidity != "correctness"),
        "measurements": [
            {"name": name, "value": value, "unit": unit} for name, value, unit in values
        ],
    }
