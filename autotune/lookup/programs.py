"""The portfolio's programs: `python -m autotune.lookup.programs FOLDER sm_90 ...` compiles them.

The build of a wheel runs this for the architectures that `AUTOTUNE_PORTFOLIO` names. It needs NVRTC
or nvcc, and no GPU. Sizes are arguments of a kernel; layout, precision, the widths of vectors and
whether tiles fit are compiled in. So each member is compiled for a problem of every such kind: for
most members those whose rows start at multiples of 16 bytes, for the first few also the others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from autotune import compiler
from autotune.candidates.recorded import Legality
from autotune.compiler import CompileFailure, Program, installed, source_hash
from autotune.cores import available
from autotune.device import Device, catalogue
from autotune.families import registry
from autotune.families.plan import Template
from autotune.lookup.portfolio import members_of
from autotune.problem import LAYOUTS, PRECISIONS, Problem

MEMBERS, UNALIGNED_MEMBERS = 28, 6
"""Members compiled for aligned problems in each precision, and those for all others."""
ALIGNED = ((4096, 4096, 4096), (1000, 1000, 1000), (8, 1000, 1000), (1000, 8, 1000))
UNALIGNED = (
    *((1001, 1001, 1001), (1001, 1000, 1000), (1000, 1001, 1000), (1000, 1000, 1001)),
    *((7, 1001, 1001), (1001, 7, 1001)),
)
"""Sizes of each kind: of whole tiles or not, wide or narrow, with odd sizes in every place."""
RARE = "tt"
"""The layout that gets as few members as unaligned problems."""


def templates(device: Device, computes: Iterable[str] = PRECISIONS) -> list[Template]:
    """The kernel instances to compile for a device's architecture."""
    wanted: dict[Template, None] = {}
    for compute in computes:
        for problem, most in _problems(compute):
            legal = filter(Legality(problem, device), members_of(problem, device))
            for _, config in zip(range(most), legal, strict=False):
                wanted |= dict.fromkeys(
                    launch.template for launch in registry.plan(config, problem).launches
                )
    return [*wanted]


def compiled(device: Device, computes: Iterable[str] = PRECISIONS) -> bytes:
    """The archive of a device's architecture. Members that do not compile are left out.

    Raises:
        MissingError: if there is no compiler.
    """
    build = partial(compiler.compile, arch=device.arch, cache=None)
    wanted = templates(device, computes)
    with ThreadPoolExecutor(available()) as pool:
        results: list[Program | CompileFailure] = [*pool.map(build, wanted)]
    hashes = {source: source_hash(source) for source in {item.source for item in wanted}}
    return installed.dumps((item for item in results if isinstance(item, Program)), hashes)


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
        device = next(card for card in catalogue().values() if card.arch == arch)
        path = folder / f"{arch}{installed.SUFFIX}"
        path.write_bytes(compiled(device))
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
