"""Impossible values in the files that the package reads, for tests and `scripts/attack`.

`KINDS` has a correct sample of each kind of file. `mutations` replaces every value in a sample in
turn by each of `VALUES` and seals the result again, so that nothing but the value is wrong.
`Mutation.possible` tells whether the file still holds what may be true, such as a spread of 0.
`Kind.read` is the decoder of the kind, which raises ValueError for what it refuses.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.files import checksum
from autotune.files.decoding import parse
from autotune.measure.measurement import Energy, Failure, Measurement
from autotune.measure.recording import Origin, Recording, SweepRow
from autotune.problem import Problem
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, bundle, codec, ranges
from autotune.records.kernel_record import KernelEntry
from autotune.records.ranges import Range, Segment
from autotune.tuning import trial_log
from autotune.tuning.trials import Trial
from support.sample_logs import FAILED, MEASURED
from support.sample_records import H100, SQUARE, entry, record

DEPTH = 100_000


_DEEP = "@deep@"


VALUES: dict[str, Any] = {
    "-1": -1,
    "0": 0,
    "0.5": 0.5,
    "10^400": 10**400,
    "2^63": 2**63,
    "1e308": 1e308,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "empty text": "",
    "word": "x",
    "long text": "x" * 100_000,
    "null": None,
    "true": True,
    "empty list": [],
    "empty object": {},
    "deep list": _DEEP,
}
"""Values by name; `deep list` nests 100,000 lists."""


# The values that a field may have, by the end of its path, a regular expression.
_POSSIBLE: Mapping[str, frozenset[str]] = {
    "driver|compiler|source|autotune": frozenset({"empty text", "word"}),
    "limiter": frozenset({"empty text", "word"}),
    "library": frozenset({"empty text", "word", "null"}),
    "spread_us|occupancy|seconds": frozenset({"0", "0.5"}),
    "cold_spread_us|error|tolerance|relative_error": frozenset({"0", "0.5", "null"}),
    "time_us": frozenset({"0.5"}),
    "cold_us": frozenset({"0.5", "null"}),
    "samples|trials|seed|registers|shared|local|barriers": frozenset({"0"}),
    r"reserved_shared_per_block|l2_bytes|memory_clock|compute_capability\.1": frozenset({"0"}),
    "baseline|granularity|energy": frozenset({"null"}),
    "joules|power_w": frozenset({"0.5"}),
    "spread_j|clock_mhz": frozenset({"0", "0.5"}),
    r"name|arguments\.\d": frozenset({"word"}),
}


@dataclass(frozen=True)
class Mutation:
    """A file in which one value was replaced.

    Attributes:
        path: where the value stands, such as `entries.0.resources.threads`.
        value: its name in `VALUES`.
        data: the content of the file.
        possible: whether the file still holds what may be true.
    """

    path: str
    value: str
    data: bytes
    possible: bool

    def __str__(self) -> str:
        return f"{self.path} = {self.value}"


@dataclass(frozen=True)
class Kind:
    """A kind of file with a correct sample.

    Attributes:
        document: the sample as JSON data, without its checksum.
        written: the file of a document, sealed.
        read: the decoder; raises ValueError for what it refuses.
        possible: possible values by the end of a path, before those of `_POSSIBLE`.
        frame: paths that are part of no file and keep their values.
    """

    document: dict[str, Any]
    written: Callable[[dict[str, Any]], bytes]
    read: Callable[[bytes], object]
    possible: Mapping[str, frozenset[str]] = field(default_factory=dict)
    frame: frozenset[str] = frozenset()


def mutations(kind: Kind) -> Iterator[Mutation]:
    """The sample with each of `VALUES` in every place, one after the other."""
    for steps in _places(kind.document):
        path = ".".join(map(str, steps))
        if path in kind.frame:
            continue
        allowed = _allowed(kind, path)
        for name, value in VALUES.items():
            document = deepcopy(kind.document)
            target: Any = document
            for step in steps[:-1]:
                target = target[step]
            if type(target[steps[-1]]) is type(value) and target[steps[-1]] == value:
                continue
            target[steps[-1]] = value
            yield Mutation(path, name, kind.written(document), name in allowed)


def _allowed(kind: Kind, path: str) -> frozenset[str]:
    for end, values in (*kind.possible.items(), *_POSSIBLE.items()):
        if re.search(rf"(?:^|\.)(?:{end})$", path):
            return values
    return frozenset()


def _places(value: Any, start: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document."""
    if isinstance(value, dict):
        steps: list[str | int] = [*value]
    else:
        steps = [*range(len(value))] if isinstance(value, list) else []
    for step in steps:
        yield (*start, step)
        yield from _places(value[step], (*start, step))


ENERGY = Energy(0.5, 0.01, 600.0, 1_755.0)


def _text(document: object) -> bytes:
    text = json.dumps(document)
    return text.replace(f'"{_DEEP}"', "[" * DEPTH + "]" * DEPTH).encode()


def _sealed(document: dict[str, Any]) -> bytes:
    checksums: dict[str, Any] = {}
    with suppress(ValueError):  # a number that JSON does not have
        checksums[checksum.CHECKSUM] = checksum.of(document)
    return _text(checksums | document)


def _zipped(document: dict[str, Any]) -> bytes:
    return gzip.compress(_text(document), compresslevel=1)


def _bundled(document: dict[str, Any]) -> bytes:
    """The bundle of a header and its lines, each sealed."""
    body = b"".join(_sealed(line) + b"\n" for line in document["lines"])
    digest, part = sha256(body).hexdigest(), gzip.compress(body, compresslevel=1)
    parts = [{"bytes": len(part), "lines": len(document["lines"]), "sha256": digest}]
    header = {"sha256": digest, "parts": parts, **document["header"]}
    return gzip.compress(_sealed(header) + b"\n", compresslevel=1) + part


def _kernel_record() -> KernelRecord:
    made = record()
    own = replace(entry(16, 10.0), config=Config.of("transpose", {"TILE": 32, "ORDER": "rows"}))
    call = KernelCall("transpose", ("float32[64,32]", "int32=64"))
    return KernelRecord(
        H100, "measured", (KernelEntry.of(own),), made.baseline, made.provenance, call
    )


def _full_record() -> dict[str, Any]:
    """A record with every field."""
    made = entry(16, 900.0)
    timed = replace(made.measurement, cold_us=950.0, cold_spread_us=2.0, energy=ENERGY)
    timed = replace(timed, relative_error=1e-6)
    full = record(replace(made, measurement=timed), baseline_us=800.0)
    return _unsealed(codec.encode(full))


def _unsealed(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != checksum.CHECKSUM}


RANGE = Range(
    H100, Problem(512, 4096, 4096, "bf16"), "m", (Segment(1, 64, 64), Segment(65, 512, 512))
)


def _bundle() -> dict[str, Any]:
    header = {
        "schema": bundle.SCHEMA,
        "devices": [H100.to_json()],
        "records": 1,
        "ranges": 1,
        "problems": [str(SQUARE)],
    }
    return {"header": header, "lines": [_full_record(), RANGE.to_json()]}


def _recording() -> dict[str, Any]:
    """A recording of a measured and a failed configuration."""
    resources = Resources(256, 32, 2048)
    timed = Measurement(10.0, 0.1, 20, 11.0, 1e-4, 1e-3, 1e-6, 0.2, ENERGY)
    rows = (
        SweepRow(Config.of("tiled", {"tile_width": 16}), resources, timed),
        SweepRow(Config.of("tiled", {"tile_width": 8}), resources, Failure("verify", "error 3")),
    )
    origin = Origin("13.0", "NVRTC 13.0", "5e1f")
    made = Recording(SQUARE, H100, origin, "2026-11-21T12:00:00+00:00", Measurement(9.0), rows)
    return made.document()


def _device(data: bytes) -> Device:
    fields = parse(data)
    if not isinstance(fields, dict):
        raise ValueError("no object")
    return Device.from_json(fields)


def _trial(data: bytes) -> object:
    """The trial in attributes as Optuna reads them, which accepts NaN."""
    try:
        return trial_log.decode(json.loads(data))
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error


def _stored(trial: Trial) -> dict[str, Any]:
    return trial_log.encode(trial)


# An error is at most its tolerance, and no kernel is faster than its device.
_JUDGED = {
    r"entries\.0\.measurement\.error": frozenset({"0", "null"}),
    r"entries\.0\.measurement\.tolerance": frozenset({"0.5", "null"}),
}


_RECORD = {"time_us": frozenset[str](), "cold_us": frozenset({"null"}), **_JUDGED}


# A user kernel may have no arguments.
_CALL = {"kernel.arguments": frozenset({"empty list"}), **_JUDGED}


# A configuration of another version may have other values, and a failed trial no resources.
_TRIAL = {
    "config": frozenset({"word"}),
    "resources": frozenset({"null"}),
    "occupancy": frozenset({"0", "0.5", "null"}),
    "limiter": frozenset({"empty text", "word", "null"}),
    "outcome.reason": frozenset({"empty text", "word", "long text"}),
}


# A recording's columns, and the cells of its first row and of its second one, which failed.
_COLUMNS = {
    r"families\.\w+\.params": frozenset({"empty object"}),
    r"families\.\w+\.\w+": frozenset[str](),
    r"tile_width\.\d": frozenset({"-1", "0", "word"}),
    r"time_us\.0": frozenset({"0.5"}),
    r"energy\.0": frozenset({"null"}),
    r"spread_us\.0": frozenset({"0", "0.5"}),
    r"cold_us\.0": frozenset({"0.5", "null"}),
    r"(error|tolerance|relative_error|cold_spread_us)\.0": frozenset({"0", "0.5", "null"}),
    r"reason\.1": frozenset({"empty text", "word", "long text"}),
    r"(registers|shared|local|barriers|samples)\.0": frozenset({"0"}),
    r"(registers|shared|local|barriers)\.1": frozenset({"0"}),
}


# The header and the lines state the same devices.
_BUNDLE = {
    r"devices?\.\w+|devices\.0\.\w+": frozenset[str](),
    r"problems\.0": frozenset({"empty text", "word"}),
    **_RECORD,
}


_FRAME = frozenset({"header", "lines", "lines.0", "lines.1"})


KINDS: Mapping[str, Kind] = {
    "record": Kind(_full_record(), _sealed, codec.loads, _RECORD),
    "user kernel": Kind(_unsealed(codec.encode(_kernel_record())), _sealed, codec.loads, _CALL),
    "range": Kind(RANGE.to_json(), _sealed, ranges.loads),
    "bundle": Kind(_bundle(), _bundled, bundle.loads, _BUNDLE, _FRAME),
    "device": Kind(H100.to_json(), _text, _device),
    "recording": Kind(_recording(), _zipped, Recording.loads, _COLUMNS),
    "trial": Kind(_stored(MEASURED), _text, _trial, _TRIAL),
    "failed trial": Kind(_stored(FAILED), _text, _trial, _TRIAL),
}
"""Samples of every kind of file, by name."""
