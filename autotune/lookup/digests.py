"""Where digests are found: beside shipped bundles, in the cache, or made now."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib import resources
from itertools import chain
from pathlib import Path
from zlib import crc32

from autotune import files, settings
from autotune.device import Device, same_architecture, same_model
from autotune.errors import AutotuneError
from autotune.files import limits
from autotune.lookup import state
from autotune.lookup.digest import RecordDigest
from autotune.lookup.digest_file import FORMAT, dumps, loads
from autotune.lookup.neighbours import Pool
from autotune.records import Record, Records, shipped
from autotune.records.bundle import BundleReader
from autotune.records.record import folders_of, holds
from autotune.records.standing import first_of_each_problem
from autotune.version import __version__

SUFFIX = ".digest"
FOLDER = "choices"
PART, PARTS = 512, 64
"""Most records of a digest; above, records are spread over so many digests, of which a new record
makes one anew."""

Digests = tuple[RecordDigest, ...]


def own(device: Device, records: Records) -> Digests:
    """A digest of every problem recorded on the device's model."""
    return _merged((device, *records.namesakes(device)), same_model, device, records)


def of_architecture(device: Device, records: Records) -> Digests:
    """A digest of every problem recorded on the device's model, then of every problem recorded on
    other models of the architecture.

    Both always teach. On 65 and 128 shapes of the suites of an H100 and an H200, each size left out
    in turn, look-ups reach 0.971 and 0.968 of the fastest recorded time by the records of both
    cards, 0.970 and 0.967 by the card's own, and 0.972 and 0.967 by the other's; without networks
    0.955 and 0.910, 0.958 and 0.907, 0.927 and 0.902.
    """
    names = (card for card in records.devices() if _is_related(device, card))
    return own(device, records) + _merged(names, _is_related, device, records)


def others(device: Device, records: Records) -> Digests:
    """A digest of every problem recorded on other architectures."""
    names = (card for card in records.devices() if _is_other(device, card))
    return _merged(names, _is_other, device, records)


def _is_other(device: Device, card: Device) -> bool:
    return not same_architecture(card, device)


def _is_related(device: Device, card: Device) -> bool:
    return same_architecture(card, device) and not same_model(card, device)


def of_bundle(path: Path, content: str, read: Callable[[], Iterable[Record]]) -> list[RecordDigest]:
    """The digest of a bundle: the one beside it if that is of its present content, else one of the
    cache, else made from its records and kept.

    Args:
        path: the bundle.
        content: the hash of its content.
        read: returns its records.
    """
    key = _key(content)
    kept = settings.cache_dir() / FOLDER / "bundles" / f"{key[:32]}{SUFFIX}"
    digests = _read(beside(path), key)
    return _kept(kept, key, read) if digests is None else digests


def beside(bundle: Path) -> Path:
    """The file of a bundle's digest."""
    return bundle.with_name(f"{bundle.name.partition('.')[0]}{SUFFIX}")


def made(content: str, records: Iterable[Record]) -> bytes:
    """The file of the digest of a bundle with that content."""
    return dumps(records, _key(content))


def _merged(
    names: Iterable[Device],
    serves: Callable[[Device, Device], bool],
    device: Device,
    records: Records,
) -> Digests:
    stored = [_of_store(name, records) for name in names]
    bundles = shipped.decoded(partial(serves, device), _of_bundle)
    return _first_of_each((*stored,), (*bundles,), serves, device)


@lru_cache(maxsize=16)
def _first_of_each(
    stored: tuple[Digests, ...],
    bundles: tuple[Digests, ...],
    serves: Callable[[Device, Device], bool],
    device: Device,
) -> Digests:
    """The digest that stands for each problem; the same object for the same files."""
    serving = {id(row.device): serves(device, row.device) for rows in bundles for row in rows}
    ours = ([row for row in rows if serving[id(row.device)]] for rows in bundles)
    return tuple(first_of_each_problem(*stored, *ours))


@lru_cache(maxsize=4)
def pool_of(digests: tuple[RecordDigest, ...]) -> Pool[RecordDigest]:
    """The pool of the digests, which ranks them by their distance from a problem."""
    return Pool(digests)


def _of_store(device: Device, records: Records) -> Digests:
    """The digests of a store's records of a device."""
    root = records.store.root
    listed = [
        (f"{folder}/{row[0]}", *row[1:])
        for folder in folders_of(device)
        for row in state.of_folder(root / Record.FOLDER / folder)
        if holds(folder, str(row[0]), device)
    ]
    if len(listed) <= PART:
        return _kept_records(f"records{SUFFIX}", tuple(listed), device, records)
    parts: dict[int, state.State] = {}
    for row in listed:
        slug = str(row[0]).partition("/")[2].partition(".")[0]
        parts.setdefault(crc32(slug.encode()) % PARTS, []).append(row)
    digests = (
        _kept_records(f"records-{number}{SUFFIX}", tuple(rows), device, records)
        for number, rows in sorted(parts.items())
    )
    return tuple(chain.from_iterable(digests))


@lru_cache(maxsize=2 * PARTS)
def _kept_records(
    name: str, rows: tuple[tuple[object, ...], ...], device: Device, records: Records
) -> Digests:
    """The digests of the records in some files of a device, by the state of these files."""
    if not rows:
        return ()
    root = records.store.root
    paths = [root / Record.FOLDER / str(row[0]) for row in rows]
    key = _key(state.key(str(root), rows))
    path = root / FOLDER / device.slug / name
    return tuple(_kept(path, key, lambda: records.store.records(device, paths)))


@lru_cache(maxsize=16)
def _of_bundle(path: Path, reader: BundleReader) -> Digests:
    return tuple(of_bundle(path, reader.content, reader.records))


def _kept(path: Path, key: str, read: Callable[[], Iterable[Record]]) -> list[RecordDigest]:
    """The digests in a file of the cache, made again if they are not of that key."""
    digests = _read(path, key)
    if digests is not None:
        return digests
    data = dumps(read(), key)
    with suppress(OSError, AutotuneError):  # a cache that cannot be written keeps nothing
        files.ensure(path.parent)
        files.write_whole(path, data, durable=False)
    return loads(data)[1]


def _read(path: Path, key: str) -> list[RecordDigest] | None:
    """The digests in a file; None if there are none of that key."""
    try:
        stated, records = loads(files.read(path, limits.BUNDLE))
    except (OSError, ValueError):
        return None
    return records if stated == key else None


def _key(content: str) -> str:
    """The key of a digest: a hash of the records and of what describes them."""
    return sha256(json.dumps([FORMAT, __version__, _model(), content]).encode()).hexdigest()


@cache
def _model() -> str:
    """A hash of what features follow from: the cost model's coefficients, its correction, and the
    clusters of listed cards."""
    data = resources.files("autotune") / "data"
    return sha256(
        b"".join(
            (data / name).read_bytes() for name in ("cost.json", "correction.npz", "devices.json")
        )
    ).hexdigest()
