"""Every kind of file that the package keeps or reads: an intact sample, and its readers."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from random import Random

from support.fake_runner import program
from support.impossible_values import KINDS as SAMPLES
from support.sample_journals import CONFIGS, journal, measured
from support.sample_records import H100, SQUARE

from attacks.plausible import impossible
from autotune.compiler import Program
from autotune.compiler import cache as programs
from autotune.errors import AutotuneError
from autotune.export.files import replace_files
from autotune.families.plan import Template
from autotune.maintenance import exchange
from autotune.maintenance.inventory import inspect
from autotune.records import KernelRecord, Record, Store, codec, ranges, shipped
from autotune.runners.base import Measurement
from autotune.runners.recording import Recording
from autotune.runners.replay import noisy
from autotune.targets import targets
from autotune.tuning.search.journal import rescue

Read = Callable[[Path], list[str]]
"""Reads a sample below a folder with everything that reads such files, and returns what is wrong.

An `AutotuneError` or `ValueError` where the reader states one is no fault."""

STUDY = "simt"
TRIALS = 12


@dataclass(frozen=True)
class Kept:
    """A kind of file.

    Attributes:
        path: of the sample, below a folder.
        content: the intact sample.
        read: its readers.
        gzipped: whether it is a gzip file.
        weight: how often it is damaged, relative to the others.
        more: further files that belong to it.
    """

    path: str
    content: Callable[[], bytes]
    read: Read
    gzipped: bool = False
    weight: float = 1.0
    more: Callable[[], Mapping[str, bytes]] = dict


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
    inspect(folder)
    with suppress(AutotuneError):
        exchange.read(path)
    before = path.read_bytes() if regular(path) else None
    with suppress(AutotuneError):
        store.save(made)
        copies = [copy.read_bytes() for copy in path.parent.glob(f"{path.name}.*-*")]
        if before is not None and before not in (path.read_bytes(), *copies):
            faults += [] if reads_as(before, made) else ["a broken record was not kept aside"]
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
    inspect(folder)
    return faults


def read_range(folder: Path) -> list[str]:
    """Loads and checks the range."""
    intact = ranges.loads(sample("range"))
    faults = [
        fault for tuned in ranges.load(folder, H100) for fault in sealed(tuned, intact, "range")
    ]
    inspect(folder)
    return faults


def read_bundle(folder: Path) -> list[str]:
    """Imports the bundle."""
    intact = {codec.loads(sample("record")), ranges.loads(sample("range"))}
    with suppress(AutotuneError):
        contents = exchange.read(folder / "bundle")
        changed = [item for item in contents if item not in intact]
        return [f"a changed bundle was accepted: {item}" for item in changed]
    return []


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


def read_journal(folder: Path) -> list[str]:
    """Opens the journal as the next run does; what it cannot read must be kept somewhere."""
    return read_study(folder, str(folder / "study.log"))


def read_sqlite(folder: Path) -> list[str]:
    """Opens the database as the next run does."""
    return read_study(folder, f"sqlite:///{folder}/study.db")


def read_rescued(folder: Path) -> list[str]:
    """Opens the journal whose trials were rescued."""
    # The name has a hash of the storage's path, which is another one in each folder.
    path = folder / "rescued.jsonl"
    os.environ["AUTOTUNE_CACHE_DIR"] = str(folder)
    target = rescue.path_of(str(folder / "study.log"), STUDY)
    target.parent.mkdir()
    path.rename(target)
    return read_study(folder, str(folder / "study.log"))


def read_study(folder: Path, where: str) -> list[str]:
    """Opens a study, reads its trials and adds one."""
    os.environ["AUTOTUNE_CACHE_DIR"] = str(folder)
    try:
        opened = journal(where, STUDY, patience_s=0.5)
    except AutotuneError:
        return []
    faults = [fault for trial in opened.told for fault in impossible(trial)]
    with suppress(AutotuneError):
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


def sample_program(cubin: bytes) -> Program:
    """A program with made-up machine code."""
    return replace(program(TEMPLATE, "sm_90"), cubin=cubin, key=KEY)


def program_file() -> bytes:
    """The file of the sample program."""
    header = {name: getattr(sample_program(b""), name) for name in programs._HEADER}
    body = json.dumps(header).encode() + b"\n" + bytes(range(256)) * 8
    return programs._checksum(KEY, body) + b"\n" + body


def read_program(folder: Path) -> list[str]:
    """Takes the program from the cache, or compiles it again."""
    built = sample_program(b"built again")
    result = programs.cached(folder, KEY, TEMPLATE, "sm_90", lambda: built)
    intact = sample_program(bytes(range(256)) * 8)
    inspect(folder)
    return [] if result in (built, intact) else ["a changed program was accepted"]


EXPORTED = {"gemm.c": b"int gemm;\n", "gemm.h": b"extern int gemm;\n"}


def manifest() -> bytes:
    """The manifest of the sample export."""
    digests = {name: sha256(content).hexdigest() for name, content in EXPORTED.items()}
    return json.dumps({"schema": 1, "files": digests}, indent=1).encode() + b"\n"


def read_manifest(folder: Path) -> list[str]:
    """Exports again into the same folder."""
    foreign = folder / "gemm.c"
    foreign.write_bytes(b"edited by the user\n")
    new = {"gemm.c": b"int newer;\n", "gemm.h": b"extern int newer;\n", "gemm.json": manifest()}
    with suppress(AutotuneError):
        replace_files(folder, "gemm.json", new)
    kept = foreign.read_bytes() == b"edited by the user\n"
    return [] if kept else ["an edited file was overwritten"]


def studied(where: Callable[[Path], str], file: str) -> Callable[[], bytes]:
    """The file of a study with some finished trials."""

    @lru_cache(maxsize=1)
    def content() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            opened = journal(where(Path(folder)), STUDY)
            for config in CONFIGS[:TRIALS]:
                opened.claim(config)
                opened.finish(measured(config))
            opened.close()
            return (Path(folder) / file).read_bytes()

    return content


@lru_cache(maxsize=1)
def rescued() -> bytes:
    """The file of rescued trials."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("AUTOTUNE_CACHE_DIR")
        os.environ["AUTOTUNE_CACHE_DIR"] = folder
        trials = [measured(config) for config in CONFIGS[:TRIALS]]
        file = rescue.keep("/study.log", STUDY, trials)
        os.environ["AUTOTUNE_CACHE_DIR"] = before or folder
        assert file is not None
        return file.read_bytes()


def quarantined() -> bytes:
    """The file of a quarantine."""
    lines: Iterable[dict[str, str]] = (
        {"key": f"tiled:tile_width={width}@5e1f", "reason": "timeout"} for width in (8, 16, 24)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


KINDS: Mapping[str, Kept] = {
    "record": Kept(
        f"records/{H100.slug}/{SQUARE.slug}.json", lambda: sample("record"), read_record
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
    "bundle": Kept("bundle", lambda: sample("bundle"), read_bundle, gzipped=True),
    "bundle of schema 1": Kept("bundle", lambda: sample("bundle of schema 1"), read_bundle),
    "shipped bundle": Kept("device.jsonl.gz", lambda: sample("bundle"), read_shipped, gzipped=True),
    "device file": Kept("device.json", lambda: sample("device"), read_device),
    "recording": Kept(
        "recording.json.gz", lambda: sample("recording"), read_recording, gzipped=True
    ),
    "journal": Kept(
        "study.log", studied(lambda folder: str(folder / "study.log"), "study.log"), read_journal
    ),
    "SQLite": Kept(
        "study.db",
        studied(lambda folder: f"sqlite:///{folder}/study.db", "study.db"),
        read_sqlite,
        weight=0.05,
    ),
    "rescued trials": Kept("rescued.jsonl", rescued, read_rescued),
    "quarantine": Kept(f"quarantine/{H100.slug}.jsonl", quarantined, read_quarantine),
    "program": Kept(f"programs/{KEY}.program", program_file, read_program),
    "manifest": Kept("gemm.json", manifest, read_manifest, more=lambda: EXPORTED),
}
