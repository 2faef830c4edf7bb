"""A search that takes long enough to be killed in the middle, for a process of its own."""

from __future__ import annotations

import time
from pathlib import Path

from autotune.families.config import Config
from autotune.measure.measurement import Measurement
from autotune.records import Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.tunable import GemmTunable
from support.fake_runner import ORIGIN, FakeRunner, by_width, compiled
from support.sample_records import SQUARE


def tune_slowly(cache: Path, log: Path) -> None:
    """Tunes the square tiled kernel; each measurement takes 20 ms and is a line of `log`."""

    def outcome(config: Config) -> Measurement:
        with log.open("a") as file:
            file.write(f"{config}\n")
        time.sleep(0.02)
        return by_width(config)

    runner, tiles = FakeRunner(outcome, again=by_width), GemmTunable(SQUARE, "tiled")
    options = Search(sampler="random")
    tune(tiles, runner, Store(cache), options, compile=compiled, origin=ORIGIN)
