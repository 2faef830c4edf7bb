"""The portfolio's programs: `python -m autotune.lookup.programs FOLDER sm_90 ...` compiles them.

The build of a wheel runs this for the architectures that `AUTOTUNE_PORTFOLIO` names. It needs NVRTC
or nvcc, and no GPU. Sizes are arguments of a kernel; layout, precision, the widths of vectors and
whether tiles fit are compiled in. So each member is compiled for a problem of every such kind: for
most members those whose rows start at multiples of 16 bytes, for the first few also the others.
The kernels that the package's records have as the fastest are compiled for their own problems, and
serve their neighbours.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path

from autotune import compiler
from autotune.candidates.recorded import Legality, is_legal
from autotune.compiler import CompileFailure, Program, installed, source_hash
from autotune.cores import available
from autotune.device import catalogue
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.lookup.portfolio import members_of
from autotune.problem import LAYOUTS, PRECISIONS, Problem
from autotune.records import shipped

MEMBERS, UNALIGNED_MEMBERS = 28, 6
"""Members compiled for aligned problems in each precision, and those for all others."""
ALIGNED = ((4096, 4096, 4096), (1000, 1000, 1000), (8, 1000, 1000), (1000, 8, 1000))
UNALIGNED = (
    *((1001, 1001, 1001), (1001, 1000, 1000), (1000, 1001, 1000), (1000, 1000, 1001)),
    *((7, 1001, 1001), (1001, 7, 1001)),
    *((1002, 1002, 1002), (1002, 1002, 1000), (1000, 1002, 1000)),
    *((1004, 1004, 1004), (1000, 1004, 1000)),
)
"""Sizes of each kind: of whole tiles or not, wide or narrow, with odd sizes in every place, and
with rows of whole vectors of two and of four elements."""
RARE = "tt"
"""The layout that gets as few members as unaligned problems."""


def templates(arch: str, computes: Collection[str] = tuple(PRECISIONS)) -> list[Template]:
    """The kernel instances to compile for an architecture."""
    wanted: dict[Template, None] = {}
    for problem, config in chain(_members(arch, computes), _fastest(arch, computes)):
        plan = registry.plan(config, problem)
        wanted |= dict.fromkeys(launch.template for launch in plan.launches)
    return [*wanted]


def compiled(arch: str, computes: Collection[str] = tuple(PRECISIONS)) -> bytes:
    """The archive of an architecture. Members that do not compile are left out.

    Raises:
        MissingError: if there is no compiler.
    """
    build = partial(compiler.compile, arch=arch, cache=None)
    wanted = templates(arch, computes)
    with ThreadPoolExecutor(available()) as pool:
        results: list[Program | CompileFailure] = [*pool.map(build, wanted)]
    hashes = {source: source_hash(source) for source in {item.source for item in wanted}}
    return installed.dumps((item for item in results if isinstance(item, Program)), hashes)


def _members(arch: str, computes: Collection[str]) -> Iterator[tuple[Problem, Config]]:
    """The members that are compiled, each with a problem of every kind. Each card has its own, as
    rules read its SMs."""
    cards = [card for card in catalogue().values() if card.arch == arch]
    for problem, most in chain.from_iterable(map(_problems, computes)):
        for card in cards:
            legal = filter(Legality(problem, card), members_of(problem, card))
            yield from zip(repeat(problem), islice(legal, most), strict=False)


def _fastest(arch: str, computes: Collection[str]) -> Iterator[tuple[Problem, Config]]:
    """The fastest kernels, hot and cold, of the package's records on the architecture."""
    for record in shipped.records_where(lambda card: card.arch == arch):
        problem, fastest = record.problem, (record.best.config, record.best_by("cold").config)
        for config in dict.fromkeys(fastest):
            if problem.compute in computes and is_legal(config, problem, record.device):
                yield problem, config


def _problems(compute: str) -> Iterator[tuple[Problem, int]]:
    """A problem of each kind, with the number of members that are compiled for it."""
    for layout in LAYOUTS:
        for sizes in (*ALIGNED, *UNALIGNED):
            few = sizes in UNALIGNED or layout == RARE
            yield Problem(*sizes, compute, layout), UNALIGNED_MEMBERS if few else MEMBERS


def main(folder: Path, archs: Iterable[str]) -> None:
    """Writes the archive of each architecture."""
    folder.mkdir(parents=True, exist_ok=True)
    for arch in archs:
        path = folder / f"{arch}{installed.SUFFIX}"
        path.write_bytes(compiled(arch))
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
