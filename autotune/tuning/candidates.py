"""What a tuning run can try on a problem, and what it had better try first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from autotune.candidates import cost, space
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import Problem, distance
from autotune.records import Record
from autotune.runners.base import Runner
from autotune.tuning.tunable import Candidates

AUTO = "auto"
"""The name of all families that a problem is tuned over by default, `families.tuned`."""

# First guesses of the model, and the least of each family, however much slower than another's the
# model takes them to be; and the winners of the nearest recorded problems.
GUESSES, EACH = 12, 2
# Further ones, for as long as nothing is known.
MORE = 12
A_TILE, ALIKE = 4, 2
NEIGHBOURS, RUNNERS_UP = 4, 4


def families_of(family: str, problem: Problem) -> tuple[str, ...]:
    """The kernel families that a name stands for: itself, or those of `auto`.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    if family == AUTO:
        return registry.tuned(problem)
    return (registry.serving(family, problem).name,)


def candidates(
    problem: Problem,
    runner: Runner,
    family: str,
    unsafe: Callable[[Config], bool],
    *,
    survey: int | None = None,
) -> Candidates:
    """What the runner can be asked for; what is `unsafe` counts as rejected, as quarantined.

    The cost model ranks `survey` of each family, evenly spread, or all.

    Raises:
        AutotuneError: if nothing is left.
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    rejected = Counter[str]()
    surveyed: list[Config] = []
    others: list[Config] = []
    for name in families_of(family, problem):
        there = _there(problem, runner, name)
        rejected.update(there.rejected)
        safe = [config for config in there.configs if not unsafe(config)]
        if len(safe) < len(there.configs):
            rejected["quarantined"] += len(there.configs) - len(safe)
        some = safe if survey is None else space.spread(safe, survey)
        first = frozenset(some)
        surveyed += some
        others += [config for config in safe if config not in first]
    if not surveyed:
        raise AutotuneError(_none(problem, runner, family, rejected))
    ranked = tuple(config for _, config in cost.rank(surveyed, problem, runner.device))
    return Candidates(ranked, tuple(others), dict(rejected.most_common()))


def guesses(
    ranked: Sequence[Config], problem: Problem, records: Iterable[Record]
) -> tuple[Config, ...]:
    """What had better be tried first: the model's first choice of each family, what won on similar
    problems, and the model's other choices."""
    chosen = diverse(ranked, problem, GUESSES + MORE)
    first = {config.family: config for config in reversed(chosen)}
    near = transferred(problem, records, NEIGHBOURS)
    return tuple(dict.fromkeys((*sorted(first.values(), key=chosen.index), *near, *chosen)))


def diverse(ranked: Sequence[Config], problem: Problem, count: int) -> list[Config]:
    """The first `count` of `ranked`, passing over what is too much like those before.

    At most `A_TILE` have the same block tile and at most `ALIKE` the same work to do with it: what
    else differs is often what the model is blind to. And what it misjudges is most likely a whole
    family, so each has `EACH` among them.
    """
    tiles, works = Counter[object](), Counter[object]()
    found: dict[str, list[int]] = {config.family: [] for config in ranked}
    for place, config in enumerate(ranked):
        if len(found[config.family]) == count:
            continue
        work = registry.find(config.family).work(config, problem)
        tile = (config.family, work.tile)
        alike = (*tile, work.turns, work.copies)
        if tiles[tile] < A_TILE and works[alike] < ALIKE:
            found[config.family].append(place)
            tiles[tile] += 1
            works[alike] += 1
    sure = [place for places in found.values() for place in places[:EACH]]
    more = sorted(place for places in found.values() for place in places[EACH:])
    chosen = dict.fromkeys((*sure, *more, *range(len(ranked))))
    return [ranked[place] for place in sorted(islice(chosen, max(count, len(sure))))]


def todays_of(
    family: str, recorded: Iterable[Config], problem: Problem, device: Device
) -> tuple[Config, ...]:
    """The recorded configurations of a family that have the parameters which it has today.

    Those of an older version may lack some, and no kernel can be made of them.
    """
    names = set(registry.find(family).domain(problem, device))
    return tuple(one for one in recorded if one.family == family and set(one.values) == names)


def transferred(problem: Problem, records: Iterable[Record], count: int) -> list[Config]:
    """The winners of the `count` recorded problems of the same kind that are nearest in shape, and
    the runners-up of those that differ in no size.

    To a kernel fp16 and bfloat16 are of one kind.
    """
    wanted = kind(problem)
    near = sorted(
        (record for record in records if kind(record.problem) == wanted),
        key=lambda record: (distance(record.problem, problem), record.problem),
    )
    won = [record.best.config for record in near[:count]]
    same = (record for record in near[:count] if distance(record.problem, problem) == 0)
    alike = [entry.config for record in same for entry in record.entries[:RUNNERS_UP]]
    return [of_compute(config, problem) for config in dict.fromkeys((*won, *alike))]


def of_compute(config: Config, problem: Problem) -> Config:
    """The configuration for the problem's compute, which some families have among their
    parameters."""
    params = ((name, problem.compute if name == "compute" else one) for name, one in config.params)
    return Config(config.family, tuple(params))


def kind(problem: Problem) -> tuple[object, ...]:
    """What problems have in common that the same kernels are good at, whatever their sizes."""
    tensor_cores = problem.compute != "f32"
    return problem.layout, problem.element_bytes, problem.products, tensor_cores


def _there(problem: Problem, runner: Runner, family: str) -> space.Space:
    """The legal configurations of a family, or those that the runner knows."""
    known = runner.known()
    if known is None:
        return space.feasible(problem, runner.device, family)
    todays = todays_of(family, known, problem, runner.device)
    older = sum(config.family == family for config in known) - len(todays)
    return space.Space(todays, {"parameters": older} if older else {})


def _none(problem: Problem, runner: Runner, family: str, rejected: Counter[str]) -> str:
    what = "configuration" if family == AUTO else f"{family} configuration"
    reasons = ", ".join(f"{why} {count}" for why, count in rejected.most_common())
    why = f"rejected: {reasons}" if reasons else "it knows none of that kind"
    return f"no {what} can run {problem} on {runner.device.name}; {why}"
