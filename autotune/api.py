"""The public functions: tune a problem, look it up, run it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from autotune import compiler, families, settings, space, targets
from autotune.candidates import AUTO, families_of
from autotune.config import Config
from autotune.errors import AutotuneError, NotFoundError, UsageError
from autotune.families.simt import SIMT
from autotune.problem import Problem
from autotune.store import Record, Store
from autotune.targets import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotune.device import Device
    from autotune.ladder import Ladder
    from autotune.observer import Observer
    from autotune.runtime.product import Array
    from autotune.tuning import Options

BUDGET_S = 60.0
"""Seconds of search if the caller sets no limit."""


def tune(
    m: int,
    n: int,
    k: int,
    *,
    compute: str = "f32",
    layout: str = "nn",
    batch: int = 1,
    epilogue: str = "none",
    device: str = DEFAULT,
    trials: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    sampler: str = "tpe",
    family: str = AUTO,
    jobs: int | None = None,
    observer: Observer | None = None,
) -> Record:
    """Searches the fastest kernel of (m, k) by (k, n) matrices and records the best ten.

    A second call goes on from what the first one measured. The cache directory holds all of it.

    Args:
        m: rows of A and C.
        n: columns of B and C.
        k: columns of A, rows of B.
        compute: the precision.
        layout: how A and B lie in memory (see `Problem`).
        batch: products at once.
        epilogue: what is done to each element at the end: `none`, `bias`, `relu`, `bias_relu`,
            `gelu` or `bias_gelu` (see `Problem`).
        device: `gpu` (measured; `gpu:1` for another), `replay:h100` (recorded), a name of the
            catalogue or a JSON file (predicted).
        trials: stop at so many configurations, those of earlier calls included.
        budget: stop after so many seconds; 60 if neither limit is given, except that
            `exhaustive` then tries everything.
        seed: of the search.
        sampler: `tpe`, `random` or `exhaustive`.
        family: of kernels: `simt`, `gemv` (for at most 16 rows or columns of C), `tiled` or
            `naive`; `auto` chooses from the first two.
        jobs: threads that compile; by default one for each core but one.
        observer: is told about the progress.

    Raises:
        UsageError: for an impossible problem, an unknown device, or limits that are no limits.
        MissingError: without a GPU, a driver, PyCUDA or a compiler, where they are needed.
        CacheError: if the cache directory cannot be written.
        AutotuneError: if no configuration works.
    """
    problem = Problem(m, n, k, compute, layout, batch, epilogue)
    options = options_of(trials, budget, seed, sampler, jobs)
    return search(problem, options, device=device, family=family, observer=observer)


def options_of(
    trials: int | None, budget: float | None, seed: int, sampler: str, jobs: int | None
) -> Options:
    """The options of a search, checked and with the default budget.

    Raises:
        UsageError: for an unknown sampler, limits below 1 trial or 0 seconds, less than 1 job,
            and what is no number.
    """
    from autotune.search import Sampler
    from autotune.tuning import Options

    known: tuple[Sampler, ...] = get_args(Sampler)
    chosen = next((name for name in known if name == sampler), None)
    if chosen is None:
        raise UsageError(f"unknown sampler {sampler!r}; give one of {', '.join(known)}")
    for name, value in (("trials", trials), ("jobs", jobs), ("seed", seed)):
        if value is not None and not isinstance(value, int):
            raise UsageError(f"{name} is {value!r}; give a whole number")
    for name, value in (("trials", trials), ("jobs", jobs)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; give at least 1")
    if budget is not None and not isinstance(budget, int | float):
        raise UsageError(f"budget is {budget!r}; give a number of seconds")
    if budget is not None and not budget > 0:
        raise UsageError(f"budget is {budget:g} s; give more than 0")
    if seed < 0:
        raise UsageError(f"seed is {seed}; give 0 or more")
    if trials is None and budget is None and chosen != "exhaustive":
        budget = BUDGET_S
    return Options(trials, budget, seed, chosen, jobs)


def search(
    problem: Problem,
    options: Options,
    *,
    device: str = DEFAULT,
    family: str = AUTO,
    observer: Observer | None = None,
) -> Record:
    """`tune` for values that are checked already."""
    from autotune.tuning import tune

    families_of(family)
    cache = settings.cache_dir()
    with targets.opened(problem, device, seed=options.seed) as target:
        return tune(
            problem,
            target.runner,
            Store(settings.ensure(cache)),
            options,
            compile=partial(compiler.compile, cache=cache),
            origin=target.origin,
            observer=observer,
            family=family,
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
    device: str = DEFAULT,
) -> Record:
    """What is recorded of a problem on a device; the best evidence there is, and it says which.

    Raises:
        NotFoundError: if it was never tuned.
        UsageError: for an impossible problem or an unknown device.
        MissingError: without a GPU, if no other device is given.
    """
    return recorded(Problem(m, n, k, compute, layout, batch, epilogue), device)


def recorded(problem: Problem, device: str = DEFAULT) -> Record:
    """`best` for values that are checked already."""
    where = targets.resolve(device)
    targets.check_memory(problem, where)
    record = Store(settings.cache_dir()).load(where, problem)
    if record is None:
        option = "" if device == DEFAULT else f" --device {device}"
        raise NotFoundError(
            f"{problem} is not tuned on {where.name}; run `autotune tune {problem}{option}`"
        )
    return record


def ladder(n: int, *, device: str = DEFAULT, observer: Observer | None = None) -> Ladder:
    """The naive, the tiled and the best `simt` kernel of n x n matrices, beside cuBLAS.

    The best one is what is recorded of the problem; one that is not tuned is tuned first.

    Raises:
        NotFoundError: if the device is a recording that does not hold the problem.
        AutotuneError: as `tune`.
    """
    from autotune import ladder

    problem = Problem(n, n, n)
    if (recording := targets.recording_of(problem, device)) is not None:
        return ladder.recorded(recording)
    best = _best_simt(problem, device, observer)
    with targets.opened(problem, device) as target:
        compiled = partial(compiler.compile, cache=settings.cache_dir())
        return ladder.climb(problem, best, target.runner, compiled)


def tiled_registers(device: Device, widths: Sequence[int]) -> tuple[str, dict[int, int]]:
    """The architecture compiled for, and the registers a thread of the square tiled kernel.

    A device that is older than every architecture of the compiler gets those of the oldest one.

    Raises:
        UsageError: for a TILE_WIDTH that the kernel is not made for.
        MissingError: without a compiler.
        AutotuneError: if it does not compile.
    """
    from concurrent.futures import ThreadPoolExecutor

    from autotune.families.tiled import TILE_WIDTHS, TILED

    for width in widths:
        if width not in TILE_WIDTHS:
            least, most = TILE_WIDTHS[0], TILE_WIDTHS[-1]
            raise UsageError(f"TILE_WIDTH is {width}; give {least} to {most}")
    arch = "sm_{}{}".format(*max(device.compute_capability, targets.OLDEST))
    problem, cache = Problem(1, 1, 1), settings.cache_dir()

    def registers(width: int) -> int:
        config = Config.of(TILED.name, {"tile_width": width, "specialized": 1})
        (launch,) = families.plan(config, problem).launches
        program = compiler.compile(launch.template, arch, cache=cache)
        if isinstance(program, compiler.CompileFailure):
            raise AutotuneError(f"{launch.template.expression} for {arch}: {program.reason}")
        return program.registers

    with ThreadPoolExecutor() as pool:
        return arch, dict(zip(widths, pool.map(registers, widths), strict=True))


def matmul(
    a: Any,
    b: Any,
    out: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    tune: bool = False,
    bias: Any = None,
    activation: str | None = None,
) -> Array:
    """`out = act(alpha a b + beta out + bias)` on the caller's current stream; see
    `runtime.matmul`.

    Args:
        a: (m, k) or (batch, m, k), of PyTorch, CuPy, PyCUDA or another library with
            `__cuda_array_interface__`.
        b: (k, n) or (batch, k, n).
        out: (m, n) or (batch, m, n); if None, the library of `a` allocates it.
        alpha: factor of the product.
        beta: factor of what `out` holds, which is not read if this is 0.
        tune: tunes the shape first if it is not tuned, for 60 s.
        bias: (n,), added to every row.
        activation: `relu`, `gelu` (the exact one, with erf) or None.

    Raises:
        ArrayError: for operands that do not fit each other or that no kernel takes.
        ProblemError: for an unknown activation or too large a batch.
        MissingError: without a driver or a GPU; with `tune` also without PyCUDA.
    """
    from autotune import runtime

    tuner = _tuner if tune else None
    return runtime.matmul(
        *(a, b, out), alpha=alpha, beta=beta, bias=bias, activation=activation, tuner=tuner
    )


def _best_simt(problem: Problem, device: str, observer: Observer | None) -> Config:
    """The fastest recorded `simt` kernel that is legal today; one is searched if there is none."""
    where = targets.resolve(device)
    record = Store(settings.cache_dir()).load(where, problem)
    for config in _simt(record) if record else ():
        if space.rejection(config, problem, where) is None:
            return config
    options = options_of(None, None, 0, "tpe", None)
    found = search(problem, options, device=device, family=SIMT.name, observer=observer)
    if not (configs := _simt(found)):
        raise AutotuneError(f"the best of {problem} are no simt kernels; give a larger N than 16")
    return configs[0]


def _simt(record: Record) -> list[Config]:
    """The recorded `simt` configurations, the fastest first."""
    return [one.config for one in record.entries if one.config.family == SIMT.name]


def _tuner(problem: Problem, device: Device) -> Record:
    options = options_of(None, None, 0, "tpe", None)
    return search(problem, options, device=f"gpu:{targets.index_of(device)}")
