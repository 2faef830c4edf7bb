"""The public functions: tune a problem, look it up, run it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from autotune import compiler, settings
from autotune.errors import AutotuneError, NotFoundError
from autotune.problem import Problem, compute_of
from autotune.records import Record, Records, Store, merging
from autotune.targets import targets
from autotune.targets.targets import DEFAULT
from autotune.tuning.options import Options, options_of

# What else there is takes long to import, and a search starts its workers first.
if TYPE_CHECKING:
    from autotune.device import Device
    from autotune.families.config import Config
    from autotune.lookup.answer import Answer
    from autotune.tuning.events import Observer
    from autotune.tuning.ladder import Ladder


def tune(
    m: int,
    n: int,
    k: int,
    *,
    compute: str = "f32",
    layout: str = "nn",
    batch: int = 1,
    epilogue: str = "none",
    output: str = "same",
    accuracy: str = "exact",
    device: str = DEFAULT,
    devices: str | Sequence[int] | None = None,
    trials: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    sampler: str = "gp",
    family: str = "auto",
    jobs: int | None = None,
    objective: str = "hot",
    storage: str | None = None,
    observer: Observer | None = None,
) -> Record:
    """Searches the fastest kernel of (m, k) by (k, n) matrices and records the best ten.

    A second call goes on from what the first one measured. The cache directory holds all of it.

    Args:
        m: rows of A and C.
        n: columns of B and C.
        k: columns of A, rows of B.
        compute: the precision: `f32`, `tf32`, `tf32x3`, `f16` or `bf16` (see `Problem`).
        layout: how A and B lie in memory (see `Problem`).
        batch: products at once.
        epilogue: what is done to each element at the end: `none`, `bias`, `relu`, `bias_relu`,
            `gelu` or `bias_gelu` (see `Problem`).
        output: `f32` for C and a bias in fp32 though A and B have 16 bits; else `same`.
        accuracy: `near` makes `f32` `tf32x3`; else `exact`.
        device: `gpu` (measured; `gpu:1` for another), `replay:h100` (recorded), a name of the
            catalogue or a JSON file (predicted).
        devices: in its place several GPUs of one model, which share the work: their numbers, also
            as text such as `0,1`, or `all`.
        trials: stop at so many configurations, those of earlier calls included.
        budget: stop after so many seconds; 60 if neither limit is given, except that
            `exhaustive` then tries everything.
        seed: of the search.
        sampler: `gp`, which stops by itself, `tpe`, `random` or `exhaustive`.
        family: of kernels: `wgmma`, `mma` (tensor cores), `simt`, `gemv` (for at most 16 rows or
            columns of C), `tiled` or `naive`; `auto` chooses from the first four, as far as they
            serve the compute.
        jobs: threads that compile; by default one for each core but one.
        objective: `hot`, with inputs as the last run has left them in L2, or `cold`, with L2
            flushed. The best of either kind is recorded.
        storage: of the trials: URL of an Optuna storage, or path of a journal file; by default a
            journal in the cache directory.
        observer: is told about the progress.

    Raises:
        UsageError: for an impossible problem, an unknown device, or limits that are no limits.
        MissingError: without a GPU, a driver, PyCUDA or a compiler, where they are needed.
        CacheError: if the cache directory cannot be written.
        AutotuneError: if no configuration works.
    """
    chosen = compute_of(compute, accuracy)
    problem = Problem(m, n, k, chosen, layout, batch, epilogue, output)
    options = options_of(trials, budget, seed, sampler, jobs, objective, storage)
    return search(
        problem, options, device=device, devices=devices, family=family, observer=observer
    )


def search(
    problem: Problem,
    options: Options,
    *,
    device: str = DEFAULT,
    devices: str | Sequence[int] | None = None,
    family: str = "auto",
    observer: Observer | None = None,
) -> Record:
    """`tune` for values that are checked already."""
    cache = settings.cache_dir()
    with targets.opening(problem, device, numbers=devices, seed=options.seed) as opened:
        from autotune.tuning.gemm import GemmTunable
        from autotune.tuning.loop import tune

        subject = GemmTunable(problem, family)
        target = opened()
        return tune(
            subject,
            target.runner,
            Store(settings.ensure(cache)),
            options,
            compile=partial(compiler.compile, cache=cache),
            origin=target.origin,
            observer=observer,
            others=target.others,
        )


def best(
    m: int,
    n: int,
    k: int,
    *,
    compute: str = "f32",
    layout: str = "nn",
    batch: int = 1,
    epilogue: str = "none",
    output: str = "same",
    accuracy: str = "exact",
    device: str = DEFAULT,
) -> Record:
    """What is recorded of a problem on a device; the best evidence there is, and it says which.

    Raises:
        NotFoundError: if it was never tuned.
        UsageError: for an impossible problem or an unknown device.
        MissingError: without a GPU, if no other device is given.
    """
    chosen = compute_of(compute, accuracy)
    return recorded(Problem(m, n, k, chosen, layout, batch, epilogue, output), device)


def recorded(problem: Problem, device: str = DEFAULT) -> Record:
    """`best` for values that are checked already."""
    where = targets.resolve(device)
    targets.check_memory(problem, where)
    record = Records(Store(settings.cache_dir())).load(where, problem)
    if record is None:
        raise _untuned(problem, where, device)
    return record


def choose(
    m: int,
    n: int,
    k: int,
    *,
    compute: str = "f32",
    layout: str = "nn",
    batch: int = 1,
    epilogue: str = "none",
    output: str = "same",
    accuracy: str = "exact",
    device: str = DEFAULT,
) -> Answer:
    """What `matmul` runs for a problem, tuned or not: the configuration, where it comes from and
    the loss against full tuning that is expected (see `lookup.Answer`).

    Raises:
        NotFoundError: if no kernel can run it.
        UsageError: for an impossible problem or an unknown device.
        MissingError: without a GPU, if no other device is given.
    """
    chosen = compute_of(compute, accuracy)
    return answered(Problem(m, n, k, chosen, layout, batch, epilogue, output), device)


def answered(problem: Problem, device: str = DEFAULT) -> Answer:
    """`choose` for values that are checked already."""
    from autotune.lookup.lookup import lookup

    where = targets.resolve(device)
    targets.check_memory(problem, where)
    answer = lookup(problem, where, Store(settings.cache_dir()))
    if answer is None:
        raise NotFoundError(f"no kernel can run {problem} on {where.name}; give another device")
    return answer


def outdated(found: Record | Answer) -> str | None:
    """What of this machine has changed since the record behind an answer was measured, such as
    `driver 12.8, now 13.0`; None if nothing has, or if there is no such record."""
    record = found if isinstance(found, Record) else found.record
    return None if record is None else merging.stale(record, targets.here())


def ladder(n: int, *, device: str = DEFAULT, observer: Observer | None = None) -> Ladder:
    """The naive, the tiled and the best `simt` kernel of n x n matrices, beside cuBLAS, and the
    best ones on tensor cores in each precision.

    The best `simt` kernel is what is recorded of the problem; one that is not tuned is tuned first.
    The others are what is recorded, or else the model's choice.

    Raises:
        NotFoundError: if the device is a recording that does not hold the problem.
        AutotuneError: as `tune`.
    """
    from autotune.tuning import ladder

    problem = Problem(n, n, n)
    if (recording := targets.recording_of(problem, device)) is not None:
        return ladder.recorded(recording, partial(targets.recording_of, spec=device))
    best, cache = _best_simt(problem, device, observer), settings.cache_dir()
    compiled = partial(compiler.compile, cache=cache)
    with targets.opened(problem, device) as target:
        climbed = ladder.climb(problem, best, target.runner, compiled)
    opened = partial(targets.opened, spec=device)
    return ladder.extended(climbed, Store(cache), opened, compiled)


def _untuned(problem: Problem, where: Device, device: str) -> NotFoundError:
    option = "" if device == DEFAULT else f" --device {device}"
    return NotFoundError(
        f"{problem} is not tuned on {where.name}; run `autotune tune {problem}{option}`"
    )


def _best_simt(problem: Problem, device: str, observer: Observer | None) -> Config:
    """The fastest recorded `simt` kernel that is legal today; one is searched if there is none."""
    from autotune.candidates import space
    from autotune.families.simt.family import SIMT

    where = targets.resolve(device)
    record = Store(settings.cache_dir()).load(where, problem)
    for config in _simt(record) if record else ():
        if space.rejection(config, problem, where) is None:
            return config
    options = options_of(None, None, 0, "gp", None)
    found = search(problem, options, device=device, family=SIMT.name, observer=observer)
    if not (configs := _simt(found)):
        raise AutotuneError(f"the best of {problem} are no simt kernels; give a larger N than 16")
    return configs[0]


def _simt(record: Record) -> list[Config]:
    """The recorded `simt` configurations, the fastest first."""
    from autotune.families.simt.family import SIMT

    return [one.config for one in record.entries if one.config.family == SIMT.name]
