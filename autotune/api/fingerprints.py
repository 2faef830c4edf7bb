"""A hash of what would run, to compare machines."""

from __future__ import annotations

from autotune import settings
from autotune.lookup import batch_invariant as invariant
from autotune.lookup import fingerprints
from autotune.lookup.fingerprints import Fingerprint
from autotune.lookup.lookup import finder
from autotune.problem import ProblemLike, problem_of
from autotune.records import Store
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike


def fingerprint(
    *shapes: ProblemLike, device: DeviceLike = DEFAULT, batch_invariant: bool = False
) -> Fingerprint:
    """A hash of what would run on a device: `str()` of two are equal exactly if both would launch
    the same kernels.

        ours = str(autotune.fingerprint("16x4096x4096:bf16:nt"))

    It covers the configuration of every shape, hot and cold, the programs with their sources and
    compiler, the evidence, and whether cuBLAS was measured to be faster.

    Args:
        shapes: the problems; without any, all records and tuned ranges of the device, also the
            batch-invariant ones.
        device: as for `tune`.
        batch_invariant: whether the shapes run by their batch-invariant ranges.

    Raises:
        ProblemError: for an impossible shape.
        DeviceError: if there is no such device.
        MissingError: without a GPU, if no other device is given.
    """
    problems = [problem_of(shape) for shape in shapes]
    find = invariant.batch_invariant if batch_invariant else finder(settings.mode())
    store = Store(settings.cache_dir())
    return fingerprints.fingerprint(problems, targets.resolve(device), store, find)
