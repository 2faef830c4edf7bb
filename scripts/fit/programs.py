"""Compiles the programs of a wheel: `python scripts/fit/programs.py FOLDER sm_90 ...`.

The build of a wheel runs this for the architectures that `AUTOTUNE_PORTFOLIO` names. It needs
NVRTC, and no GPU. Sizes are arguments of a kernel; layout, precision, scales, the widths of
vectors and whether tiles fit are compiled in. The programs worth compiling are those that look-ups
choose: problems are drawn at random, on every card of the architecture in turn, and a greedy cover
takes the programs that serve most of them. The fastest kernels of the package's records come too;
they serve their own problems and their neighbours.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import chain, cycle, islice, product
from pathlib import Path
from random import Random

from autotune import files
from autotune.cores import available
from autotune.cuda import cache, compiler
from autotune.cuda.program import CompileFailure, Program, source_hashes
from autotune.device import Device, catalogue
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.lookup.nearest import Neighbourhood, choices, nearly_fastest
from autotune.measure.objective import COLD
from autotune.model.legality import is_legal
from autotune.problem import LAYOUTS, PRECISIONS, Problem
from autotune.records import Records, shipped

DRAWN, PART = 2000, 100
"""Problems drawn for each precision; problems in a part, which one process handles."""


SMALLEST, LARGEST = (1, 16, 16), (16384, 32768, 32768)
"""Sizes M, N and K between which problems are drawn."""


MOST_FLOPS = 2e12
"""A product with more takes longer than its kernel's compilation."""


STEPS = 1, 8, 64
"""All sizes of a drawn problem are multiples of one of these, chosen with equal probability."""


FEWEST = 2
"""Problems that a program has to serve to be added; an average, if several are added together."""


Needs = tuple[tuple[Template, ...], ...]
"""The programs of each configuration that serves a problem: one configuration's are enough."""


def templates(
    arch: str, computes: Collection[str] = tuple(PRECISIONS), count: int = DRAWN
) -> list[Template]:
    """The kernel instances to compile for an architecture; so many problems are drawn for each
    precision."""
    with ProcessPoolExecutor(available()) as pool:
        parts = product(computes, range(0, count, PART))
        needs = [*chain.from_iterable(pool.map(partial(_part_needs, arch, count), parts))]
    fastest = [*dict.fromkeys(_fastest(arch, computes))]
    return [*fastest, *covering(needs, fastest)]


def compiled(arch: str, computes: Collection[str] = tuple(PRECISIONS), count: int = DRAWN) -> bytes:
    """The archive of an architecture. Kernels that do not compile are left out.

    Raises:
        MissingError: if there is no compiler.
    """
    build = partial(compiler.compile, arch=arch, cache=None)
    wanted = templates(arch, computes, count)
    with ThreadPoolExecutor(available()) as pool:
        results: list[Program | CompileFailure] = [*pool.map(build, wanted)]
    hashes = source_hashes({item.source: (item.source,) for item in wanted})
    return cache.archive_of((item for item in results if isinstance(item, Program)), hashes)


def covering(needs: Iterable[Needs], base: Iterable[Template]) -> list[Template]:
    """A greedy cover: the programs to add to `base` so that most problems are served.

    Each step adds the programs of one configuration that newly serve the most problems per program,
    until they would serve fewer than `FEWEST`.
    """
    numbers: dict[Template, int] = {}

    def numbered(programs: Iterable[Template]) -> frozenset[int]:
        return frozenset(numbers.setdefault(program, len(numbers)) for program in programs)

    chosen = numbered(base)
    unserved = [[numbered(programs) for programs in options] for options in needs if options]
    added: list[int] = []
    while unserved := [sets for sets in unserved if not any(map(chosen.issuperset, sets))]:
        lacks = (dict.fromkeys(programs - chosen for programs in sets) for sets in unserved)
        gains = Counter(chain.from_iterable(lacks))
        best = max(gains, key=lambda lack: gains[lack] / len(lack))
        if gains[best] < FEWEST * len(best):
            break
        chosen |= best
        added += sorted(best)
    listed = [*numbers]
    return [listed[number] for number in added]


def _part_needs(arch: str, count: int, part: tuple[str, int]) -> list[Needs]:
    """The programs that serve each problem of a part, on the architecture's cards in turn."""
    compute, first = part
    placed = zip(drawn(compute, count), cycle(cards(arch)), strict=False)
    return [_needs(problem, card) for problem, card in islice(placed, first, first + PART)]


def cards(arch: str) -> list[Device]:
    """The catalogue's cards of an architecture."""
    return [card for card in catalogue().values() if card.arch == arch]


def log_uniform(random: Random, smallest: Sequence[int], largest: Sequence[int]) -> list[float]:
    """Random sizes whose logarithms are uniform between those of `smallest` and `largest`."""
    return [
        math.exp(random.uniform(math.log(low), math.log(high)))
        for low, high in zip(smallest, largest, strict=True)
    ]


def drawn(compute: str, count: int) -> Iterator[Problem]:
    """Random problems of a precision, log-uniform in every size; always the same."""
    random, scales = Random(compute), PRECISIONS[compute].scales
    while count:
        step = random.choice(STEPS)
        sizes = log_uniform(random, SMALLEST, LARGEST)
        m, n, k = (max(1, round(size / step)) * step for size in sizes)
        layout, scale = random.choice(LAYOUTS), random.choice(scales)
        problem = Problem(m, n, k, compute, layout, scale=scale)
        if problem.flops <= MOST_FLOPS:
            yield problem
            count -= 1


def _needs(problem: Problem, card: Device) -> Needs:
    """The programs of each nearly fastest configuration."""
    fastest = nearly_fastest(choices(Neighbourhood.of(problem, card, Records.shipped_only())))
    return tuple(tuple(_programs(choice.config, problem)) for choice in fastest)


def _fastest(arch: str, computes: Collection[str]) -> Iterator[Template]:
    """The fastest kernels, hot and cold, of the package's records on the architecture."""
    for record in shipped.records_where(lambda card: card.arch == arch):
        problem, fastest = record.problem, (record.best.config, record.best_by(COLD).config)
        for config in dict.fromkeys(fastest):
            if problem.compute in computes and is_legal(config, problem, record.device):
                yield from _programs(config, problem)


def _programs(config: Config, problem: Problem) -> list[Template]:
    return [launch.template for launch in registry.plan(config, problem).launches]


def main() -> None:
    """Writes the archive of each architecture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the archives go")
    parser.add_argument("archs", nargs="+", help="architectures, such as sm_90")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for arch in arguments.archs:
        path = arguments.folder / f"{arch}{cache.SUFFIX}"
        files.write_whole(path, compiled(arch))
        print(f"{path.name}: {path.stat().st_size:,} bytes")


LEAST_SIZES, MOST_SIZES = (1, 16, 16), (8192, 16384, 16384)


def drawn_sizes(random: Random, steps: Sequence[int]) -> tuple[int, int, int]:
    """M, N and K, log-uniform, cut to multiples of one of the steps; smaller ones stay."""
    sizes = [*map(round, log_uniform(random, LEAST_SIZES, MOST_SIZES))]
    step = random.choice(steps)
    m, n, k = (size // step * step if size >= step else size for size in sizes)
    return m, n, k


if __name__ == "__main__":
    main()
