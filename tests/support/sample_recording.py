"""A small recording with made-up times."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.measure import recording
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Origin, Recording, SweepRow, path_of
from autotune.problem import Problem
from support.sample_records import H100

NAME = "synthetic"
DEVICE = f"replay:{NAME}"
PROBLEM = Problem(256, 256, 256)
VENDOR_US = 6.0
FASTEST = Config.parse(
    "simt:bm=128,bn=128,wm=32,wn=64,tm=8,tn=8,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k=1,reduction=none,workers=0,chunks=1,pack=none,group=1,fence=0,"
    "order=columns"
)
FASTEST_US = 8.0
PLAIN = (
    *(f"naive:mapping={mapping},block=32" for mapping in ("uncoalesced", "coalesced")),
    *(f"tiled:tile_width={width},specialized=1" for width in (8, 16, 32)),
)


def recorded() -> Recording:
    """A recording of five plain kernels and of 25 `simt` kernels, one of them wrong."""
    plain = map(Config.parse, PLAIN)
    rows = [_row(config, 100.0 / number) for number, config in enumerate(plain, start=1)]
    choices = product((8, 16), (1, 2), (1, 2), ("columns", "snake", "column-pairs"))
    for number, (bk, fragments, blocks, order) in enumerate(choices):
        values: dict[str, Value] = {"bk": bk, "fragments": fragments, "min_blocks": blocks}
        config = Config.of("simt", FASTEST.values | values | {"order": order})
        rows.append(_row(config, FASTEST_US if config == FASTEST else 9.0 + number))
    wrong = Config.of("simt", FASTEST.values | {"stages": 4})
    rows.append(SweepRow(wrong, _row(wrong, 1.0).resources, Failure("verify", "error 3 of 0.1")))
    origin = Origin("13.0", "NVRTC 13.5", "5e1f")
    date = "2026-11-21T12:00:00+00:00"
    return Recording(PROBLEM, H100, origin, date, Measurement(VENDOR_US, 0.01), tuple(rows))


def ship(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the recording as the only one of the package."""
    recorded().save(path_of(NAME, PROBLEM, root))
    find, names = recording.find, recording.names
    monkeypatch.setattr(recording, "find", lambda name, problem: find(name, problem, root))
    monkeypatch.setattr(recording, "names", lambda root=root: names(root))


def _row(config: Config, time_us: float) -> SweepRow:
    resources = registry.find(config.family).estimate(config, PROBLEM)
    return SweepRow(config, resources, Measurement(time_us, 0.01, 20, error=1e-5, tolerance=1e-3))
