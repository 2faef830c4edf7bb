"""The recorded problems near a problem, and what they teach: the cost model's errors, and the
accuracy of the vendor's library.

A store's records are ranked by the names of their files. Only those near a problem are read, and
their digests kept in the cache, so that a store may hold any number of records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib import resources
from itertools import chain
from pathlib import Path

import numpy as np

from autotune import files, settings
from autotune.candidates.accuracy import AccuracyFilter
from autotune.candidates.model_error import ModelError
from autotune.device import Device, same_architecture, same_model
from autotune.errors import AutotuneError
from autotune.families.shared.accuracy import measured_limit, possible_limit, promised_limit
from autotune.files import limits
from autotune.lookup.digest import (
    FORMAT,
    SIZES,
    RecordDigest,
    dumps,
    loads,
    of_sizes,
    samples,
    sizes_of,
)
from autotune.problem import Precision, Problem
from autotune.records import Record, Records, Store, shipped
from autotune.records.bundle import BundleReader
from autotune.records.record import weakness
from autotune.runners.base import Evidence
from autotune.runners.objective import HOT, Objective
from autotune.version import __version__

Neighbour = Record | RecordDigest

REACH = 6.0
"""Octaves within which a record is a neighbour."""

# Distances for differences other than size, in octaves.
A_LAYOUT, A_COMPUTE, AN_OUTPUT, AN_EPILOGUE, A_DEVICE = 1.0, 2.0, 0.2, 0.1, 1.0
A_TWIN = 0.1
A_SCALE, SCALED_BLOCKS, AN_ACCUMULATION = 0.1, 1.0, 0.5

DECIMALS = 9
"""Digits of a remoteness, so that records at the same distance tie whatever the rounding."""

TEACHERS = 128
"""Records that choices learn from, the nearest."""


def differences(
    recorded: Problem, recorded_on: Device, asked: Problem, device: Device
) -> tuple[float, ...]:
    """How far apart two problems are in octaves by each difference other than size."""
    letters = zip(recorded.layout, asked.layout, strict=True)
    outputs_differ = recorded.output_type != asked.output_type and recorded.output != asked.output
    return (
        A_LAYOUT * sum(letter != wanted for letter, wanted in letters),
        _between(recorded.precision, asked.precision),
        _eight_bit(recorded, asked),
        AN_OUTPUT * outputs_differ,
        AN_EPILOGUE * (recorded.epilogue != asked.epilogue),
        A_DEVICE * (not same_model(recorded_on, device)),
    )


def _between(recorded: Precision, asked: Precision) -> float:
    """How far two precisions are apart, in octaves."""
    if recorded is asked:
        return 0.0
    return A_TWIN if recorded.name == asked.twin else A_COMPUTE


def _eight_bit(recorded: Problem, asked: Problem) -> float:
    """How far scales and accumulation are apart, in octaves: scales of blocks and promoted sums
    change the main loop, other scales the epilogue."""
    blocks = (recorded.scale == "block") != (asked.scale == "block")
    return (
        SCALED_BLOCKS * blocks
        + A_SCALE * (recorded.scale != asked.scale)
        + AN_ACCUMULATION * (recorded.accumulate != asked.accumulate)
    )


def learn_errors(
    device: Device, records: Iterable[Record], objective: Objective = HOT
) -> ModelError:
    """The cost model's errors on a few records, from which those on problems near them follow.

    The model predicts hot times; with the objective "cold" the errors lead to cold ones.
    """
    usable = (record for record in records if record.evidence != "predicted")
    return ModelError(device, samples([*map(RecordDigest.of, usable)], objective))


def accuracy_filter(
    problem: Problem, device: Device, records: Iterable[Neighbour], *, verified: bool = False
) -> AccuracyFilter:
    """Judges configurations by the vendor's error where a record has it, else by its bounds.

    Look-ups run kernels that nothing has verified: these have to keep the accuracy bound however
    accurate the vendor's library is. A race is `verified`: only kernels that cannot keep it are
    refused.
    """
    for record in records:
        error = record.baseline.relative_error if record.baseline else None
        if error is not None and _same_sums(record, problem) and same_model(record.device, device):
            return AccuracyFilter(problem, measured_limit(problem, error))
    limit = possible_limit if verified else promised_limit
    return AccuracyFilter(problem, limit(problem, device))


def _same_sums(record: Neighbour, problem: Problem) -> bool:
    """Whether the vendor's library adds up the same products: whatever follows, and in `tf32x3`
    what it does in `f32`."""
    if (record.problem.m, record.problem.n, record.problem.k) != (problem.m, problem.n, problem.k):
        return False

    def products(posed: Problem) -> tuple[object, ...]:
        return posed.batch, posed.layout, posed.precision.vendor, posed.output_type

    return products(record.problem) == products(problem)


SUFFIX = ".digest"
FOLDER = "choices"
KEPT = 1024
"""Digests of a folder's records that are kept, those made last."""
SEVERAL = 4
"""Most records of a problem that are looked at, of as many bundles and folders."""

Serves = Callable[[Device, Device], bool]
Near = tuple[float, RecordDigest]
"""A record behind its remoteness in octaves."""
EVIDENCE: dict[str, Evidence] = {"json": "measured", "replayed.json": "replayed"}
"""The evidence of records, by how the names of their files end."""
RECORDS = "records"
"""Stands for the content in the key of digests that name the states of their records' files."""


def own(device: Device, records: Records) -> Pool:
    """The problems recorded on the device's model."""
    return _pool(device, records, same_model)


def of_architecture(device: Device, records: Records) -> Pool:
    """The problems recorded on any model of the device's architecture, which all teach.

    On 65 and 128 shapes of the suites of an H100 and an H200, each size left out in turn, look-ups
    reach 0.971 and 0.968 of the fastest recorded time by the records of both cards, 0.970 and 0.967
    by the card's own, and 0.972 and 0.967 by the other's; without networks 0.955 and 0.910, 0.958
    and 0.907, 0.927 and 0.902.
    """
    return _pool(device, records, same_architecture)


def elsewhere(device: Device, records: Records) -> Pool:
    """The problems recorded on other architectures."""
    return _pool(device, records, _is_other)


def _is_other(device: Device, card: Device) -> bool:
    return not same_architecture(device, card)


def _pool(device: Device, records: Records, serves: Serves) -> Pool:
    """The records on devices that serve: those of the store, then those of bundles."""
    cards = {card.slug: card for card in records.devices() if serves(device, card)}
    folders = tuple(_folder(records.store.root, card) for card in cards.values())
    bundles = tuple(shipped.decoded(partial(serves, device), of_bundle))
    return _of(folders, bundles, device, serves)


@lru_cache(maxsize=8)
def _of(
    folders: tuple[StoredFolder, ...],
    bundles: tuple[tuple[RecordDigest, ...], ...],
    device: Device,
    serves: Serves,
) -> Pool:
    digests = [*chain.from_iterable(bundles)]
    cards = {id(digest.device): digest.device for digest in digests}  # few; their hashes are slow
    serving = {number for number, card in cards.items() if serves(device, card)}
    return Pool(folders, (digest for digest in digests if id(digest.device) in serving))


class StoredFolder:
    """The files of a device's records in a store, which are read when they are asked for.

    Args:
        root: the store.
        device: the device.
        names: the files' names.
    """

    def __init__(self, root: Path, device: Device, names: tuple[str, ...]) -> None:
        self.device, self.names = device, names
        self._store, self._folder = Store(root), root / Record.FOLDER / device.slug
        self._file = root / FOLDER / device.slug / f"records{SUFFIX}"
        self._kept: dict[str, RecordDigest | None] = {}
        self._kept |= {digest.source: digest for digest in _read(self._file, RECORDS) or ()}
        self._changed = False

    def digest(self, name: str) -> RecordDigest | None:
        """The digest of the record in a file, kept or made now; None if it cannot be read."""
        try:
            status = (self._folder / name).stat()
        except OSError:
            return None
        state, kept = " ".join(map(str, (name, *files.identity(status)))), self._kept
        if state not in kept:
            slug, _, ending = name.partition(".")
            problem = Problem.parse(slug.replace("-", ":"))
            record = self._store.load(self.device, problem, EVIDENCE[ending])
            kept[state] = None if record is None else RecordDigest.of(record, state)
            self._changed = True
        return kept[state]

    def keep(self) -> None:
        """Writes the digests made last, if some are new."""
        if self._changed:
            self._changed = False
            self._kept = dict([*self._kept.items()][-KEPT:])
            _keep(self._file, filter(None, [*self._kept.values()]), RECORDS)


def _folder(root: Path, device: Device) -> StoredFolder:
    """A device's files; the same object as long as they have the same names."""
    names: list[str] = []
    with suppress(OSError), os.scandir(root / Record.FOLDER / device.slug) as entries:
        names = [entry.name for entry in entries]
    return _listed(root, device, tuple(names))


@lru_cache(maxsize=16)
def _listed(root: Path, device: Device, names: tuple[str, ...]) -> StoredFolder:
    return StoredFolder(root, device, names)


class Pool:
    """Measured and replayed records, with what tells how near they are to any problem.

    Args:
        folders: the files of records in stores.
        digests: digests of more records. Of equally good records of a problem the first serves.
    """

    def __init__(
        self, folders: Iterable[StoredFolder] = (), digests: Iterable[RecordDigest] = ()
    ) -> None:
        self._folders = [*folders]
        self._kinds: dict[object, tuple[int, Problem, Device]] = {}
        self._listed: list[Callable[[], RecordDigest | None]] = []
        rows: list[tuple[int, ...]] = []
        for folder in self._folders:
            words_seen: dict[str, tuple[int, int]] = {}
            for name in folder.names:
                with suppress(ValueError, AutotuneError):  # a file of another kind
                    rows.append(self._row(name, folder.device, words_seen))
                    self._listed.append(partial(folder.digest, name))
        for digest in digests:
            if digest.evidence != "predicted":
                rows.append((*digest.sizes, self._kind(digest.kind, digest.device)))
                self._listed.append(partial(_itself, digest))
        table = np.array(rows, np.int64).reshape(-1, len(SIZES) + 1)
        self._sizes, self._kind_of = table[:, :-1], table[:, -1]
        plain = [of_sizes(problem, (16, 16, 16, 1)) for _, problem, _ in self._kinds.values()]
        places = {problem: place for place, problem in enumerate(sorted({*plain}))}
        self._order = np.array([places[problem] for problem in plain])

    def _kind(self, problem: Problem, device: Device) -> int:
        """A number for problems that differ in sizes alone, and a device."""
        key = id(problem), id(device)  # kept below, and faster than their hashes
        return self._kinds.setdefault(key, (len(self._kinds), problem, device))[0]

    def _row(
        self, name: str, device: Device, words_seen: dict[str, tuple[int, int]]
    ) -> tuple[int, ...]:
        """Sizes and kind of the problem in a file's name.

        Raises:
            ValueError, AutotuneError: if there is none.
        """
        slug, _, ending = name.partition(".")
        shape, _, words = slug.partition("-")
        m, n, k = map(int, shape.split("x"))
        if ending not in EVIDENCE or min(m, n, k) < 1:
            raise ValueError(f"{name} names no measured or replayed record")
        if words not in words_seen:
            problem = Problem.parse(slug.replace("-", ":"))
            words_seen[words] = problem.batch, self._kind(problem, device)
        return m, n, k, *words_seen[words]

    @property
    def problems(self) -> list[Problem]:
        """The recorded problems; some may be listed several times."""
        examples = [problem for _, problem, _ in self._kinds.values()]
        rows = zip(self._kind_of.tolist(), self._sizes.tolist(), strict=True)
        return [of_sizes(examples[kind], sizes) for kind, sizes in rows]

    def __len__(self) -> int:
        """The number of records."""
        return len(self._listed)

    def nearest(self, problem: Problem, device: Device, count: int) -> list[Near]:
        """The records of the nearest problems; of equally near problems the first."""
        if not self._listed:
            return []
        apart = np.array(
            [sum(differences(*kind[1:], problem, device)) for kind in self._kinds.values()]
        )
        octaves = np.log2(self._sizes / sizes_of(problem))
        remote = np.round(np.sqrt(np.square(octaves).sum(1)) + apart[self._kind_of], DECIMALS)
        last = min(SEVERAL * count, len(remote)) - 1
        rows = np.flatnonzero(remote <= np.partition(remote, last)[last])
        m, n, k, batch = self._sizes[rows].T
        keys = np.stack((batch, self._order[self._kind_of[rows]], k, n, m, remote[rows]))
        order = np.lexsort(keys)
        numbers = np.diff(keys[:, order], prepend=np.nan).any(axis=0).cumsum()
        rows, numbers = rows[order][numbers <= count], numbers[numbers <= count]
        digests = [self._listed[row]() for row in rows]
        for folder in self._folders:
            folder.keep()
        columns = numbers.tolist(), remote[rows].tolist(), digests
        best: dict[int, Near] = {}
        for number, near, digest in zip(*columns, strict=True):
            if digest and (number not in best or weakness(digest) < weakness(best[number][1])):
                best[number] = near, digest
        return [*best.values()]


def _itself(digest: RecordDigest) -> RecordDigest:
    return digest


@lru_cache(maxsize=16)
def of_bundle(path: Path, reader: BundleReader) -> tuple[RecordDigest, ...]:
    """The digests of a bundle: those beside it if they are of its present content, else those of
    the cache, else made from its records and kept."""
    content = reader.content
    kept = settings.cache_dir() / FOLDER / "bundles" / f"{_key(content)[:32]}{SUFFIX}"
    for file in (beside(path), kept):
        if (digests := _read(file, content)) is not None:
            return tuple(digests)
    digests = [*map(RecordDigest.of, reader.records())]
    _keep(kept, digests, content)
    return tuple(digests)


def beside(bundle: Path) -> Path:
    """The file of a bundle's digests."""
    return bundle.with_name(f"{bundle.name.partition('.')[0]}{SUFFIX}")


def made(content: str, records: Iterable[Record]) -> bytes:
    """The file of the digests of a bundle with that content."""
    return dumps(map(RecordDigest.of, records), _key(content))


def _keep(path: Path, digests: Iterable[RecordDigest], content: str) -> None:
    """Writes digests, unless the cache cannot be written."""
    with suppress(OSError, AutotuneError):
        files.ensure(path.parent)
        files.write_whole(path, dumps(digests, _key(content)), durable=False)


def _read(path: Path, content: str) -> list[RecordDigest] | None:
    """The digests in a file; None if it has none of that content."""
    try:
        key, digests = loads(files.read(path, limits.BUNDLE))
    except (OSError, ValueError):
        return None
    return digests if key == _key(content) else None


def _key(content: str) -> str:
    """The key of digests: a hash of the records and of what describes them."""
    return sha256(json.dumps([FORMAT, __version__, _model(), content]).encode()).hexdigest()


@cache
def _model() -> str:
    """A hash of what features follow from: the cost model's coefficients, its correction, and the
    clusters of listed cards."""
    data = resources.files("autotune") / "data"
    names = "cost.json", "correction.npz", "devices.json"
    return sha256(b"".join((data / name).read_bytes() for name in names)).hexdigest()
