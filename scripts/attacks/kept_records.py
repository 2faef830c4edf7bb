"""Samples and readers of records, ranges, bundles, device files and recordings."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from random import Random

from support.impossible_values import KINDS as SAMPLES
from support.sample_records import H100, SQUARE

from attacks.plausible import impossible
from autotune import cli
from autotune.errors import AutotuneError
from autotune.measure import targets
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Recording
from autotune.measure.without_gpu import noisy
from autotune.records import KernelRecord, Record, Store, bundle, codec, exchange, ranges, shipped
from autotune.records.inventory import scan

Read = Callable[[Path], list[str]]
"""Reads a sample below a folder with everything that reads such files, and returns what is wrong.

An `AutotuneError` or `ValueError` where the reader states one is no fault."""


def sample(name: str) -> bytes:
    """A sample of `support.impossible_values`."""
    return SAMPLES[name].written(SAMPLES[name].document)


@lru_cache(maxsize=1)
def sample_record() -> Record:
    """The sample record."""
    loaded = codec.loads(sample("record"))
    assert isinstance(loaded, Record)
    return loaded


@lru_cache(maxsize=1)
def sample_kernel() -> KernelRecord:
    """The sample record of a user kernel."""
    loaded = codec.loads(sample("user kernel"))
    assert isinstance(loaded, KernelRecord)
    return loaded


def sealed(value: object, intact: object, what: str) -> list[str]:
    """The fault of a value that a file with a checksum was read as, if there is one."""
    if value is None or value == intact:
        return []
    return [f"a changed {what} was accepted: {(impossible(value) or [str(value)[:200]])[0]}"]


def read_record(folder: Path) -> list[str]:
    """Loads, lists, checks, imports and replaces the record."""
    store, made = Store(folder), sample_record()
    path = store.path(H100, SQUARE)
    faults = sealed(store.load(H100, SQUARE), made, "record")
    for loaded in store.records(H100):
        faults += sealed(loaded, made, "record")
    _ = [*scan(folder, thorough=True)]
    with suppress(AutotuneError):
        _ = [*exchange.read(path)]
    before = path.read_bytes() if regular(path) else None
    with suppress(AutotuneError):
        store.save(made)
        aside = path.parent.glob(f"{path.name}.*-*")
        copies = [copy.read_bytes() for copy in aside if regular(copy)]  # a link is moved aside
        if before is not None and before not in (path.read_bytes(), *copies):
            faults += [] if reads_as(before, made) else ["a broken record was not kept aside"]
    return faults


def read_best(folder: Path) -> list[str]:
    """Looks up the record's shape and a neighbour, as `autotune best`."""
    os.environ["AUTOTUNE_CACHE_DIR"] = str(folder)
    os.environ["AUTOTUNE_SHIPPED_DIR"] = str(folder / "none")
    faults = []
    for shape in ("4096x4096x4096", "4096x4096x4000"):
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            try:
                cli.main(["best", shape, "--device", "h100"])
                status: object = 0
            except SystemExit as ended:
                status = ended.code or 0
        if status not in (0, 1, 3):
            faults.append(f"`best {shape}` ended with {status}: {text.getvalue()[-200:]}")
    return faults


def reads_as(text: bytes, made: Record) -> bool:
    """Whether the text of a record is that of this one, written another way."""
    try:
        return codec.loads(text) == made
    except ValueError:
        return False


def regular(path: Path) -> bool:
    """Whether a path is a regular file of a usual size."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 2**24


def read_kernel(folder: Path) -> list[str]:
    """Loads the record of a user kernel."""
    made = sample_kernel()
    faults = sealed(Store(folder).kernel(H100, made.call), made, "record of a user kernel")
    _ = [*scan(folder, thorough=True)]
    return faults


def read_range(folder: Path) -> list[str]:
    """Loads and checks the range."""
    intact = ranges.loads(sample("range"))
    faults = [
        fault for tuned in ranges.load(folder, H100) for fault in sealed(tuned, intact, "range")
    ]
    _ = [*scan(folder, thorough=True)]
    return faults


def read_bundle(name: str) -> Read:
    """Imports a bundle, and compares it with the sample of that name."""

    def read(folder: Path) -> list[str]:
        intact = bundle.loads(sample(name))
        with suppress(AutotuneError):
            contents = exchange.read(folder / "bundle")
            changed = {*contents} - {*intact.records, *intact.ranges}
            return [f"a changed bundle was accepted: {str(item)[:200]}" for item in changed]
        return []

    return read


def read_shipped(folder: Path) -> list[str]:
    """Looks up in the bundle as one that the package ships."""
    os.environ["AUTOTUNE_SHIPPED_DIR"] = str(folder)
    intact = sample_record()
    faults = sealed(shipped.record(H100, SQUARE), intact, "shipped bundle")
    for loaded in shipped.records(H100):
        faults += sealed(loaded, intact, "shipped bundle")
    shipped.ranges(H100)
    return faults


def read_device(folder: Path) -> list[str]:
    """Resolves `--device` with the file."""
    with suppress(AutotuneError):
        return impossible(targets.resolve(str(folder / "device.json")))
    return []


def read_recording(folder: Path) -> list[str]:
    """Loads the recording and replays each of its configurations."""
    with suppress(AutotuneError):
        recording = Recording.load(folder / "recording.json.gz")
        for row in recording.rows:
            if isinstance(row.outcome, Measurement):
                noisy(row.outcome, Random(0))
        return impossible(recording)
    return []
