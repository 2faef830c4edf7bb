"""Digests of records: the parts that choices for other problems read.

Decoding a record and describing its entries takes milliseconds, and a choice learns from a hundred
of them. A file of digests is msgpack, compressed by gzip:

    choices/nvidia-h200/records.digest      of the records of a device in a store
    choices/bundles/….digest                of a site's bundle
    autotune/data/shipped/….digest          of a shipped bundle, by `scripts/fit/derived.py digests`
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from autotune import files, settings
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.files import limits
from autotune.files.reading import expanded
from autotune.measure.measurement import Evidence, Measurement
from autotune.measure.objective import HOT, TIMES, Objective
from autotune.model.features import Parameters
from autotune.model.legality import current
from autotune.model.model_error import UNITS, Sample, SampleGroup, groups_of
from autotune.problem import Problem
from autotune.records import Entry, Record, Store
from autotune.records.bundle import BundleReader
from autotune.records.record import PREDICTED

FORMAT = 4, "0.2.0"
"""The format of a file, and the first release that wrote it."""

SUFFIX = ".digest"

FOLDER = "choices"

SIZES = "m", "n", "k", "batch"

HOT_US, COLD_US, LOG = range(3)

FEATURES = slice(3, 3 + len(UNITS))

RESOURCES = slice(FEATURES.stop, FEATURES.stop + len(fields(Resources)))
"""Columns of the numbers of an entry: microseconds, hot and cold; the log of measured over
predicted hot times; the features; the fields of `Resources`; after these the parameters that are
numbers. What is unknown is NaN."""


class FamilyEntries(msgspec.Struct, array_like=True):
    """The entries of one family in a record.

    Attributes:
        family: the family's name.
        configs: the configurations' texts.
        names: the names of the parameters that are words, without the compute.
        words: these words of each configuration.
        numbers: a row of float32 for each configuration, see `RESOURCES`.
    """

    family: str
    configs: list[str]
    names: tuple[str, ...]
    words: list[tuple[str, ...]]
    numbers: bytes

    def rows(self) -> NDArray[np.float32]:
        """The numbers as a matrix."""
        return np.frombuffer(self.numbers, "<f4").reshape(len(self.configs), -1)


@dataclass(frozen=True, eq=False)
class RecordDigest:
    """The part of a record that choices for other problems read.

    Attributes:
        device: the device.
        kind: a problem that differs from the record's in sizes alone.
        sizes: M, N, K and batch.
        evidence: whether its times are measured, replayed or predicted.
        quick: whether it is of a race.
        cold: whether it has cold times.
        baseline: the vendor library's measurement, if it was timed.
        encoded: its entries as they are written; most are never decoded.
        source: the state of the record's file, if it is of a store.
    """

    device: Device
    kind: Problem
    sizes: tuple[int, int, int, int]
    evidence: Evidence
    quick: bool
    cold: bool
    baseline: Measurement | None
    encoded: msgspec.Raw
    source: str

    @classmethod
    def of(cls, record: Record, source: str = "") -> RecordDigest:
        """The digest of a record.

        Entries of unknown families, or with other parameters than the family has today, are left
        out. So are algorithms of cuBLASLt, which serve no other problem.
        """
        alike: dict[tuple[object, ...], list[Entry]] = {}
        for entry in record.entries:
            config, kind = entry.config, registry.FAMILIES.get(entry.config.family)
            if kind and not entry.library and (*config.values,) == (*kind.parameters,):
                types = (config.family, *map(type, config.values.values()))
                alike.setdefault(types, []).append(entry)
        return cls(
            device=record.device,
            kind=of_sizes(record.problem, (16, 16, 16, 1)),
            sizes=sizes_of(record.problem),
            evidence=record.evidence,
            quick=record.quick,
            cold=record.best_cold is not None,
            baseline=record.baseline,
            encoded=msgspec.Raw(
                msgspec.msgpack.encode([_entries(entries, record) for entries in alike.values()])
            ),
            source=source,
        )

    @cached_property
    def problem(self) -> Problem:
        """The problem."""
        return of_sizes(self.kind, self.sizes)

    @cached_property
    def families(self) -> list[FamilyEntries]:
        """The record's entries."""
        return _FAMILIES.decode(self.encoded)

    def entries(self) -> Iterator[tuple[Config, Resources]]:
        """The configurations with their resources as compiled, the fastest first."""
        timed = [
            (row[HOT_US], text, row[RESOURCES])
            for entries in self.families
            for text, row in zip(entries.configs, entries.rows().tolist(), strict=True)
        ]
        for _, text, needed in sorted(timed):
            yield parsed(text), Resources(*map(int, needed))

    def timed(self, objective: Objective) -> Objective:
        """The time that decides for an objective; `hot` if the record has no cold times."""
        return objective.time if self.cold else HOT


_FIELDS = tuple(field.name for field in fields(RecordDigest))[2:]

_Fields = tuple[
    int, int, tuple[int, int, int, int], Evidence, bool, bool, Measurement | None, msgspec.Raw, str
]

_FAMILIES = msgspec.msgpack.Decoder(list[FamilyEntries])


class _DigestFile(msgspec.Struct):
    """A file of digests; each begins with the places of its device and its kind in the lists."""

    key: str
    devices: list[dict[str, Any]]
    kinds: list[Problem]
    records: list[_Fields]


def dumps(digests: Iterable[RecordDigest], key: str) -> bytes:
    """A file of digests; `key` names what they were made from."""
    devices: dict[Device, int] = {}
    kinds: dict[Problem, int] = {}
    rows: list[Any] = [
        (
            devices.setdefault(digest.device, len(devices)),
            kinds.setdefault(digest.kind, len(kinds)),
            *(getattr(digest, name) for name in _FIELDS),
        )
        for digest in digests
    ]
    written = _DigestFile(key, [device.to_json() for device in devices], [*kinds], rows)
    return gzip.compress(msgspec.msgpack.encode(written, enc_hook=str), 9, mtime=0)


def loads(data: bytes) -> tuple[str, list[RecordDigest]]:
    """The key and the digests in a file.

    Raises:
        ValueError: if it is none.
    """
    try:
        written = msgspec.msgpack.decode(expanded(data, limits.BUNDLE_TEXT), type=_DigestFile)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is not a digest: {error}") from error
    devices = [Device.from_json(device) for device in written.devices]
    kinds = written.kinds
    digests = [RecordDigest(devices[row[0]], kinds[row[1]], *row[2:]) for row in written.records]
    return written.key, digests


def samples(records: Sequence[RecordDigest], objective: Objective) -> list[SampleGroup]:
    """The timed entries of records, described: a group for each family."""
    together: dict[tuple[str, tuple[str, ...]], list[tuple[int, FamilyEntries]]] = {}
    for place, record in enumerate(records):
        for entries in record.families:
            together.setdefault((entries.family, entries.names), []).append((place, entries))
    problems = [(record.problem, record.device) for record in records]
    groups = (
        _group(family, names, problems, members, objective)
        for (family, names), members in together.items()
    )
    return [group for group in groups if len(group.logs)]


def _group(
    family: str,
    names: tuple[str, ...],
    problems: Sequence[tuple[Problem, Device]],
    members: Sequence[tuple[int, FamilyEntries]],
    objective: Objective,
) -> SampleGroup:
    counts = [len(entries.configs) for _, entries in members]
    numbers = np.concatenate([entries.rows() for _, entries in members]).astype(float)
    words: dict[str, int] = {}
    coded: dict[tuple[str, ...], list[int]] = {}
    rows = [*chain.from_iterable(entries.words for _, entries in members)]
    for row in dict.fromkeys(rows):
        coded[row] = [words.setdefault(word, len(words)) for word in row]
    codes = np.array([coded[row] for row in rows])
    logs = numbers[:, LOG]
    if objective.flushed:
        logs = logs + np.log(numbers[:, COLD_US] / numbers[:, HOT_US])
    timed = np.isfinite(logs)
    numbers = numbers[timed]
    every = (*registry.FAMILIES[family].parameters,)
    numbered = tuple(name for name in every if name not in (*names, "compute"))
    return SampleGroup(
        family,
        problems,
        np.repeat([place for place, _ in members], counts)[timed],
        numbers[:, FEATURES],
        logs[timed],
        Parameters(numbers[:, RESOURCES.stop :], numbered, codes[timed], names, [*words]),
    )


def sizes_of(problem: Problem) -> tuple[int, int, int, int]:
    """M, N, K and batch."""
    return problem.m, problem.n, problem.k, problem.batch


def of_sizes(problem: Problem, sizes: Sequence[int]) -> Problem:
    """The problem with another M, N, K and batch."""
    m, n, k, batch = sizes
    return replace(problem, m=m, n=n, k=k, batch=batch)


@lru_cache(maxsize=8192)
def parsed(text: str) -> Config:
    """The configuration of a text, read once."""
    return Config.parse(text)


def _entries(entries: Sequence[Entry], record: Record) -> FamilyEntries:
    """Entries of one family whose parameters are of the same types."""
    configs = [entry.config for entry in entries]
    params = Parameters.of(configs)
    estimates = [[which.estimate(entry.measurement) for which in TIMES] for entry in entries]
    times = [[each.time_us if each else math.nan for each in pair] for pair in estimates]
    resources = [astuple(entry.resources) for entry in entries]
    numbers = np.column_stack([times, _described(entries, record), resources, params.numbers])
    return FamilyEntries(
        configs[0].family,
        [*map(str, configs)],
        params.worded,
        [tuple(params.words[code] for code in row) for row in params.codes.tolist()],
        numbers.astype("<f4").tobytes(),
    )


def _described(entries: Sequence[Entry], record: Record) -> NDArray[np.float64]:
    """The log and the features of each entry of one family; NaN for those that teach nothing."""
    configs = [entry.config for entry in entries]
    usable = {*current(configs[0].family, configs, record.problem, record.device)}
    places = [place for place, config in enumerate(configs) if config in usable]
    taught = [
        Sample(configs[place], entries[place].resources, entries[place].measurement.time_us)
        for place in places
    ]
    rows = np.full((len(entries), 1 + len(UNITS)), np.nan)
    for group in groups_of(
        taught, record.problem, record.device
    ):  # one, or none where an entry breaks the rules
        rows[places] = np.column_stack([group.logs, group.features])
    rows[~np.isfinite(rows).all(axis=1), 0] = np.nan
    return rows


def of_folder(store: Store, device: Device) -> tuple[RecordDigest, ...]:
    """The digests of a device's measured and replayed records in a store, kept or made now.

    A record that cannot be read is left out, with a warning.
    """
    folder = store.root / Record.FOLDER / device.slug
    try:
        return _of_folder(store, device, folder, files.identity(folder.stat()))
    except OSError:
        return ()


@lru_cache(maxsize=16)
def _of_folder(
    store: Store, device: Device, folder: Path, identity: tuple[int, ...]
) -> tuple[RecordDigest, ...]:
    del identity  # a folder in which a record was saved or removed is another
    file = store.root / FOLDER / device.slug / f"records{SUFFIX}"
    kept = {digest.source: digest for digest in _read(file, Record.FOLDER) or ()}
    digests: dict[str, RecordDigest] = {}
    for path in sorted(folder.glob("*.json")):
        if not path.name.endswith(PREDICTED):
            with suppress(OSError):
                state = " ".join(map(str, (path.name, *files.identity(path.stat()))))
                if state in kept:
                    digests[state] = kept[state]
                elif made := store.records(device, [path]):
                    digests[state] = RecordDigest.of(made[0], state)
    if digests.keys() == kept.keys():
        return tuple(digests.values())
    return _kept(file, digests.values(), Record.FOLDER)


@lru_cache(maxsize=16)
def of_bundle(path: Path, reader: BundleReader) -> tuple[RecordDigest, ...]:
    """The digests of a bundle: those beside it if they are of its present content, else those of
    the cache, else made from its records and kept."""
    content = reader.header.sha256
    kept = settings.cache_dir() / FOLDER / "bundles" / f"{_key(content)[:32]}{SUFFIX}"
    for file in (beside(path), kept):
        if (digests := _read(file, content)) is not None:
            return tuple(digests)
    return _kept(kept, map(RecordDigest.of, reader.records()), content)


def beside(bundle: Path) -> Path:
    """The file of a bundle's digests."""
    return bundle.with_name(f"{bundle.name.partition('.')[0]}{SUFFIX}")


def made(content: str, records: Iterable[Record]) -> bytes:
    """The file of the digests of a bundle with that content."""
    return dumps(map(RecordDigest.of, records), _key(content))


def _kept(path: Path, digests: Iterable[RecordDigest], content: str) -> tuple[RecordDigest, ...]:
    """Writes digests, unless the cache cannot be written; returns them as they are read again,
    with one object for each device and kind."""
    data = dumps(digests, _key(content))
    with suppress(OSError, AutotuneError):
        files.ensure(path.parent)
        files.write_whole(path, data, durable=False)
    return tuple(loads(data)[1])


def _read(path: Path, content: str) -> list[RecordDigest] | None:
    """The digests in a file; None if it has none of that content."""
    try:
        key, digests = loads(files.read(path, limits.BUNDLE))
    except (OSError, ValueError):
        return None
    return digests if key == _key(content) else None


def _key(content: str) -> str:
    """The key of digests: a hash of the records and of what describes them."""
    return sha256(json.dumps([*FORMAT, _model(), content]).encode()).hexdigest()


@cache
def _model() -> str:
    """A hash of what features follow from: the cost model's coefficients, its correction, and the
    clusters of listed cards."""
    data = resources.files("autotune") / "data"
    names = "cost.json", "correction.npz", "devices.json"
    return sha256(b"".join((data / name).read_bytes() for name in names)).hexdigest()
