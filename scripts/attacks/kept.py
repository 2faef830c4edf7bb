"""Every kind of file that the package keeps or reads: an intact sample, and its readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from support.sample_records import H100, SQUARE

from attacks.kept_code import (
    EXPORTED,
    KEY,
    manifest,
    program_file,
    read_manifest,
    read_program,
)
from attacks.kept_records import (
    Read,
    read_best,
    read_bundle,
    read_device,
    read_kernel,
    read_range,
    read_record,
    read_recording,
    read_shipped,
    sample,
    sample_kernel,
)
from attacks.kept_studies import (
    FOREIGN,
    quarantined,
    read_foreign,
    read_log,
    read_quarantine,
    read_sqlite,
    studied,
)
from autotune.records import ranges


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
