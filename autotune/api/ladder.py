"""The ladder of kernels, from naive to tensor cores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from autotune import compiler, settings
from autotune.api import tuning
from autotune.errors import AutotuneError
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike
from autotune.tuning.options import options_of

if TYPE_CHECKING:
    from autotune.families.config import Config
    from autotune.tuning.events import Observer
    from autotune.tuning.ladder import Ladder


def ladder(n: int, *, device: DeviceLike = DEFAULT, observer: Observer | None = None) -> Ladder:
    """The naive, the tiled and the best `simt` kernel of n x n matrices beside cuBLAS, then the
    best kernels on tensor cores in each precision.

    The best `simt` kernel is the recorded one; if there is none, it is tuned first. The kernels on
    tensor cores are the recorded ones, or else the cost model's choice.

    Raises:
        NotFoundError: if the device is a recording that does not hold the problem.
        AutotuneError: as `tune`.
    """
    from autotune.tuning import ladder

    problem = Problem(n, n, n)
    if (recording := targets.recording_of(problem, device)) is not None:
        return ladder.recorded(recording, partial(targets.recording_of, device=device))
    best, cache = _best_simt(problem, device, observer), settings.cache_dir()
    compiled = partial(compiler.compile, cache=cache)
    with targets.opened(problem, device) as target:
        climbed = ladder.climb(problem, best, target.runner, compiled)
    opened = partial(targets.opened, device=device)
    return ladder.extended(climbed, Store(cache), opened, compiled)


def _best_simt(problem: Problem, device: DeviceLike, observer: Observer | None) -> Config:
    """The fastest recorded `simt` kernel that is legal in this version, else one tuned now."""
    from autotune.candidates.recorded import is_legal
    from autotune.families.simt.family import SIMT

    resolved = targets.resolve(device)
    record = Store(settings.cache_dir()).load(resolved, problem)
    for config in _simt(record) if record else ():
        if is_legal(config, problem, resolved):
            return config
    options = options_of(None, None, 0, "gp", None)
    tuned = tuning.search(problem, options, device=device, family=SIMT.name, observer=observer)
    if not (configs := _simt(tuned)):
        raise AutotuneError(f"the best of {problem} are no simt kernels; give a larger N than 16")
    return configs[0]


def _simt(record: Record) -> list[Config]:
    """The recorded `simt` configurations, the fastest first."""
    from autotune.families.simt.family import SIMT

    return [entry.config for entry in record.entries if entry.config.family == SIMT.name]
