"""The ladder of kernels, from naive to tensor cores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from autotune import settings
from autotune.api import tuning
from autotune.api.tuning import ProgressLike
from autotune.cuda import compiler
from autotune.errors import NotFoundError
from autotune.measure import devices, targets
from autotune.measure.devices import DEFAULT, DeviceLike, ReplayedFile, ReplayedGpu
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
    """The numbered rungs of n x n matrices in fp32 and bf16, each precision beside the tuned kernel
    and cuBLAS.

    Tuned kernels are the recorded ones, or else the cost model's choice.

    Args:
        n: side of the matrices.
        device: as for `tune`; of recordings those that hold a ladder.
        tune: whether to tune the kernels at the end first, unless a search of them has ended; None
            does so where times are measured.
        progress: as for `tune`, of these searches.

    Raises:
        NotFoundError: if the device is a recording without a ladder of that size.
        AutotuneError: as `tune`.
    """
    from autotune.tuning import ladder

    problems = ladder.problems(n)
    match devices.source_of(device):
        case ReplayedGpu(name):
            return ladder.load(name, n)
        case ReplayedFile(path):
            raise NotFoundError(f"{path} holds no ladder; give replay:h100")
    cache, resolved = settings.cache_dir(), targets.resolve(device)
    tune = targets.measures(device) if tune is None else tune
    choices = {
        problem.compute: _tuned(problem, device, progress, tune=tune) for problem in problems
    }
    opened = partial(targets.opened, device=device)
    return ladder.climb(n, resolved, choices, opened, partial(compiler.compile, cache=cache))


def _tuned(
    problem: Problem, device: DeviceLike, progress: ProgressLike, *, tune: bool
) -> LadderChoice | str:
    """The tuned kernel: as recorded; with `tune` as tuned now, unless a search has ended. The
    reason if the device runs none."""
    from autotune.tuning.ladder import LadderChoice, choice

    try:
        chosen = choice(problem, targets.resolve(device), Store(settings.cache_dir()))
    except NotFoundError as error:
        return str(error)
    if not tune or chosen.source == "tuned":
        return chosen
    family = chosen.config.family
    tuned = tuning.search(
        problem, Search().limited(), device=device, family=family, progress=progress
    )
    configs = (entry.config for entry in tuned.entries if entry.config.family == family)
    best = next(configs, None)
    return chosen if best is None else LadderChoice(best, "tuned")
