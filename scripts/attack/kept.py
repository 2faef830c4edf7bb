"""Every kind of file that the package keeps or reads: an intact sample, and its readers."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from random import Random

from support.fake_runner import program
from support.impossible_values import KINDS as SAMPLES
from support.sample_logs import CONFIGS, log, measured, shared
from support.sample_records import H100, SQUARE

from autotune import cli
from autotune.cuda import cache as programs
from autotune.cuda.program import Program
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.export.files import MADE_BY, replace_files
from autotune.families.plan import Resources, Template
from autotune.measure import targets
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Recording
from autotune.measure.without_gpu import noisy
from autotune.records import (
    KernelRecord,
    Record,
    Store,
    TuningRecord,
    bundle,
    codec,
    exchange,
    ranges,
    shipped,
)
from autotune.records.inventory import scan
from autotune.records.ranges import Range
from autotune.tuning.trial_log import TrialLog
from autotune.tuning.trials import Trial

_MAY_BE_ZERO = ("reserved_shared_per_block", "l2_bytes", "memory_clock")


def impossible(value: object) -> list[str]:
    """The impossible parts of a value that a reader returned; empty if all may be true."""
    return [*_faults(value)]


def _faults(value: object) -> Iterator[str]:
    if isinstance(value, TuningRecord):
        yield from _record(value)
    elif isinstance(value, Recording):
        yield from _device(value.device)
        for row in value.rows:
            yield from _faults(row.outcome)
            yield from _resources(row.resources)
    elif isinstance(value, Trial):
        yield from _faults(value.outcome)
        yield from _resources(value.resources) if value.resources else ()
        yield from _share("occupancy", value.occupancy)
    elif isinstance(value, Measurement):
        yield from _measurement(value)
    elif isinstance(value, Range):
        yield from _device(value.device)
    elif isinstance(value, Device):
        yield from _device(value)


def _record(record: TuningRecord) -> Iterator[str]:
    yield from _device(record.device)
    yield from _faults(record.baseline) if record.baseline else ()
    if not record.entries:
        yield "no entries"
    for entry in record.entries:
        yield from _measurement(entry.measurement)
        yield from _resources(entry.resources)
        yield from _share("occupancy", entry.occupancy)
    made = record.provenance
    for name, value in (("seed", made.seed), ("trials", made.trials), ("seconds", made.seconds)):
        yield from _number(name, value, least=0)


def _measurement(timed: Measurement) -> Iterator[str]:
    times = (("time_us", timed.time_us), ("cold_us", timed.cold_us))
    for name, value in times:
        if value is not None:
            yield from _number(name, value, least=0)
            if value == 0:
                yield f"{name} is 0"
    errors = ("spread_us", "cold_spread_us", "error", "tolerance", "relative_error", "samples")
    for name in errors:
        value = getattr(timed, name)
        if value is not None:
            yield from _number(name, value, least=0)


def _resources(resources: Resources) -> Iterator[str]:
    yield from _number("threads", resources.threads, least=1, most=1024)
    yield from _number("registers", resources.registers, least=0, most=255)
    yield from _number("shared", resources.shared, least=0, most=2**20)
    yield from _number("local", resources.local, least=0, most=2**20)
    yield from _number("barriers", resources.barriers, least=0, most=16)


def _device(device: Device) -> Iterator[str]:
    if not device.name or len(device.name) > 1000:
        yield f"name of {len(device.name)} characters"
    if device.warp_size != 32:
        yield f"warp_size is {device.warp_size}"
    for name, value in vars(device).items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield from _number(name, value, least=0 if name in _MAY_BE_ZERO else 1, most=1e18)


def _share(name: str, value: float | None) -> Iterable[str]:
    return () if value is None else _number(name, value, least=0, most=1)


def _number(name: str, value: float, *, least: float, most: float = math.inf) -> Iterable[str]:
    sound = type(value) in (int, float) and math.isfinite(value) and least <= value <= most
    return () if sound else (f"{name} is {str(value)[:40]}",)


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


TRIALS, LOG = 12, "study.jsonl"


def studied(file: str) -> Callable[[], bytes]:
    """The file of a study with some finished trials: a trial log, or a database."""

    @lru_cache(maxsize=1)
    def content() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            opened = opened_study(Path(folder), file)
            for config in CONFIGS[:TRIALS]:
                opened.claim(config)
                opened.finish(measured(config))
            opened.close()
            return (Path(folder) / file).read_bytes()

    return content


def opened_study(folder: Path, file: str) -> TrialLog:
    """The study in a trial log of the folder, or also in a database there."""
    path = folder / LOG
    return log(path) if file == LOG else shared(f"sqlite:///{folder / file}", path)


def quarantined() -> bytes:
    """The file of a quarantine."""
    lines: Iterable[dict[str, str]] = (
        {"key": f"tiled:tile_width={width}@5e1f", "reason": "timeout"} for width in (8, 16, 24)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def read_log(folder: Path) -> list[str]:
    """Opens the log as the next run does; its lines must stay in it."""
    path = folder / LOG
    lines = whole_lines(path)
    faults = read_study(folder, folder, LOG)
    kept = {*whole_lines(path)}
    gone = [line for line in lines if line not in kept]
    return faults + ([f"{len(gone)} of {len(lines)} lines were destroyed"] if gone else [])


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a regular file of a usual size, without a last one that has no end."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 2**24:
        return []
    return path.read_bytes().split(b"\n")[:-1]


FOREIGN = {
    "poetry.lock": b'# @generated by Poetry\n[[package]]\nname = "numpy"\n',
    "notes.lock-old": b"mine",
    "data.jsonl": b'{"name": "a", "value": 1}\n{"name": "b", "value": 2}\n',
}


def read_foreign(folder: Path) -> list[str]:
    """Gives `--storage` foreign files as databases, which must stay as they are."""
    for name in FOREIGN:
        os.utime(folder / name, (1e9, 1e9))  # older than any lock that is waited for
    before = {path: path.read_bytes() for path in folder.iterdir() if written(path)}
    faults: list[str] = []
    for name in ("poetry", "notes", "*", "data.jsonl", "notes.txt"):
        # Outside the cache: a file in the cache is the package's own.
        faults += read_study(folder / "cache", folder, name, adding=False)
    changed = [path.name for path, text in before.items() if not same(path, text)]
    return faults + [f"foreign files were changed: {changed}"] * bool(changed)


def written(path: Path) -> bool:
    """Whether a path is a regular file with something in it, of a usual size."""
    return path.is_file() and not path.is_symlink() and 0 < path.stat().st_size < 2**24


def same(path: Path, text: bytes) -> bool:
    """Whether a file is still there, with that content."""
    return path.is_file() and path.read_bytes() == text


def read_sqlite(folder: Path) -> list[str]:
    """Opens the database as the next run does."""
    return read_study(folder, folder, "study.db")


def read_study(cache: Path, folder: Path, file: str, *, adding: bool = True) -> list[str]:
    """Opens a study, reads its trials and adds one."""
    os.environ["AUTOTUNE_CACHE_DIR"] = str(cache)
    try:
        opened = opened_study(folder, file)
    except AutotuneError:
        return []
    faults = [fault for trial in opened.told for fault in impossible(trial)]
    with suppress(AutotuneError):
        if adding:
            opened.finish(measured(CONFIGS[-1]))
        opened.flush()
    with suppress(AutotuneError):
        opened.close()
    return faults


def read_quarantine(folder: Path) -> list[str]:
    """Reads the quarantine and adds to it."""
    store = Store(folder)
    store.quarantined(H100)
    with suppress(AutotuneError):
        store.quarantine(H100, "tiled:tile_width=32@5e1f", "crash")
        if "tiled:tile_width=32@5e1f" not in store.quarantined(H100):
            return ["a quarantined configuration was forgotten"]
    return []


TEMPLATE = Template("tiled.cu", "tiled", (("TILE_WIDTH", 16),))
KEY = sha256(b"sample").hexdigest()
CUBIN = bytes(range(256)) * 8


def sample_program(cubin: bytes) -> Program:
    """A program with made-up machine code."""
    return replace(program(TEMPLATE, "sm_90"), cubin=cubin, key=KEY)


def program_file() -> bytes:
    """The file of the sample program."""
    with tempfile.TemporaryDirectory() as folder:
        programs.cached(Path(folder), KEY, TEMPLATE, "sm_90", lambda: sample_program(CUBIN))
        (path,) = programs.paths(Path(folder))
        return path.read_bytes()


def read_program(folder: Path) -> list[str]:
    """Takes the program from the cache, or compiles it again."""
    built = sample_program(b"built again")
    result = programs.cached(folder, KEY, TEMPLATE, "sm_90", lambda: built)
    intact = sample_program(CUBIN)
    _ = [*scan(folder, thorough=True)]
    return [] if result in (built, intact) else ["a changed program was accepted"]


EXPORTED = {"gemm.c": b"int gemm;\n", "gemm.h": b"extern int gemm;\n"}


def manifest() -> bytes:
    """The manifest of the sample export."""
    digests = {name: sha256(content).hexdigest() for name, content in EXPORTED.items()}
    return json.dumps({"made_by": f"{MADE_BY}0", "files": digests}, indent=1).encode() + b"\n"


def read_manifest(folder: Path) -> list[str]:
    """Exports again into the same folder."""
    foreign = folder / "gemm.c"
    foreign.write_bytes(b"edited by the user\n")
    new = {"gemm.c": b"int newer;\n", "gemm.h": b"extern int newer;\n", "gemm.json": manifest()}
    with suppress(AutotuneError):
        replace_files(folder, "gemm.json", new)
    kept = foreign.read_bytes() == b"edited by the user\n"
    return [] if kept else ["an edited file was overwritten"]


@dataclass(frozen=True)
class Kept:
    """A kind of file.

    Attributes:
        path: of the sample, below a folder.
        content: the intact sample.
        read: its readers.
        compressed: whether it is gzip or xz.
        weight: how often it is damaged, relative to the others.
        more: further files that belong to it.
    """

    path: str
    content: Callable[[], bytes]
    read: Read
    compressed: bool = False
    weight: float = 1.0
    more: Callable[[], Mapping[str, bytes]] = dict


KINDS: Mapping[str, Kept] = {
    "record": Kept(
        f"records/{H100.slug}/{SQUARE.slug}.json", lambda: sample("record"), read_record
    ),
    "record, looked up": Kept(
        f"records/{H100.slug}/{SQUARE.slug}.json", lambda: sample("record"), read_best, weight=0.1
    ),
    "record of another device": Kept(
        "records/other/64x64x64-f32-nn.json", lambda: sample("record"), read_best, weight=0.1
    ),
    "foreign file": Kept(
        "notes.txt", lambda: b"to do\nto be done\n", read_foreign, weight=0.5, more=lambda: FOREIGN
    ),
    "user kernel": Kept(
        f"kernels/{H100.slug}/{sample_kernel().slug}.json",
        lambda: sample("user kernel"),
        read_kernel,
    ),
    "range": Kept(
        str(ranges.path_of(Path(), ranges.loads(sample("range")))),
        lambda: sample("range"),
        read_range,
    ),
    "bundle": Kept("bundle", lambda: sample("bundle"), read_bundle("bundle"), compressed=True),
    "shipped bundle": Kept(
        "device.jsonl.xz", lambda: sample("bundle"), read_shipped, compressed=True
    ),
    "device file": Kept("device.json", lambda: sample("device"), read_device),
    "recording": Kept(
        "recording.json.gz", lambda: sample("recording"), read_recording, compressed=True
    ),
    "trial log": Kept("study.jsonl", studied("study.jsonl"), read_log),
    "SQLite": Kept("study.db", studied("study.db"), read_sqlite, weight=0.05),
    "quarantine": Kept(f"quarantine/{H100.slug}.jsonl", quarantined, read_quarantine),
    "program": Kept(f"programs/{KEY}.program", program_file, read_program),
    "manifest": Kept("gemm.json", manifest, read_manifest, more=lambda: EXPORTED),
}
