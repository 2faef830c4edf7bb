"""The ladder of kernels, from naive to tensor cores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from autotune import settings
from autotune.api import tuning
from autotune.api.tuning import ProgressLike
from autotune.cuda import compiler
from autotune.errors import AutotuneError
from autotune.families.simt import SIMT
from autotune.measure import devices, targets
from autotune.measure.devices import DEFAULT, DeviceLike
from autotune.problem import Problem
from autotune.records import Store
from autotune.tuning.options import Search

if TYPE_CHECKING:
    from autotune.tuning.ladder import Ladder, LadderChoice


def ladder(
    n: int,
    *,
    device: DeviceLike = DEFAULT,
    tune: bool | None = None,
    progress: ProgressLike = False,
) -> Ladder:
    """The naive, the tiled and the best `simt` kernel of n x n matrices beside cuBLAS, then the
    best kernels on tensor cores in each precision.

    Kernels are the recorded ones, or else the cost model's choice.

    Args:
        n: side of the matrices.
        device: as for `tune`.
        tune: whether to tune the best `simt` kernel first, unless a search of it has ended; None
            does so where times are measured.
        progress: as for `tune`, of that search.

    Raises:
        NotFoundError: if the device is a recording that does not hold the problem.
        AutotuneError: as `tune`.
    """
    from autotune.tuning import ladder

    problem = Problem(n, n, n)
    if (recording := devices.recording_of(problem, device)) is not None:
        return ladder.recorded(recording, partial(devices.recording_of, device=device))
    cache = settings.cache_dir()
    if tune is None:
        tune = targets.measures(device)
    best = _best_simt(problem, device, progress, tune=tune)
    compiled = partial(compiler.compile, cache=cache)
    with targets.opened(problem, device) as target:
        climbed = ladder.climb(problem, best, target.runner, compiled)
    opened = partial(targets.opened, device=device)
    return ladder.extended(climbed, Store(cache), opened, compiled)


def _best_simt(
    problem: Problem, device: DeviceLike, progress: ProgressLike, *, tune: bool
) -> LadderChoice:
    """The best `simt` kernel: as recorded; with `tune` as tuned now, unless a search has ended."""
    from autotune.tuning.ladder import LadderChoice, choice

    resolved, family = targets.resolve(device), SIMT.name
    chosen = choice(problem, resolved, family, Store(settings.cache_dir()))
    if not tune or chosen.ended:
        return chosen
    options = Search().limited()
    tuned = tuning.search(problem, options, device=device, family=family, progress=progress)
    for entry in tuned.entries:
        if entry.config.family == family:
            return LadderChoice(entry.config, "tuned")
    raise AutotuneError(f"the best of {problem} are not simt kernels; give a larger N than 16")
