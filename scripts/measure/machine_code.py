"""Compiles the kernels of a checkout, and compares the machine code of two checkouts.

    python scripts/measure/machine_code.py compile before        in one checkout
    python scripts/measure/machine_code.py compile after         in the other
    python scripts/measure/machine_code.py compare before after

needs no GPU, but NVRTC and `nvdisasm` (`pip install nvidia-cuda-nvdisasm`). It compiles members of
the portfolio, each adapted to a problem, and winners of shipped records, drawn so that every family
and precision is present; and the kernels that `kernel_race.py` launches. A folder has a cubin for
each program and `programs.json`: its case, registers, spills and shared memory; its instructions
and loads, in the whole program and in loops; and hashes of the cubin and of its instructions with
the offsets of kernel parameters masked. Nothing is cached.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from itertools import islice, product
from pathlib import Path
from random import Random
from time import monotonic
from typing import Annotated, Any

import typer
from kernel_race import FILE, cases, content
from rich.console import Console
from rich.table import Table

from autotune.cuda import compiler
from autotune.cuda.cache import ProgramHeader
from autotune.cuda.program import CompileFailure, Program, sections
from autotune.device import Device, find
from autotune.errors import ProblemError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.files import write_whole
from autotune.lookup import nearest
from autotune.model.legality import is_legal
from autotune.model.space import Adaptation
from autotune.problem import EPILOGUES, LAYOUTS, PRECISIONS, Problem
from autotune.records import shipped

DEVICES = {"sm_80": "a100-80", "sm_86": "rtx-3090", "sm_90": "h200"}
"""A card of each architecture; kernels with wgmma are compiled for sm_90a."""


SIZES = (
    *((4096, 4096, 4096), (1001, 1003, 1005), (16, 4096, 4096), (8, 1000, 3000)),
    *((512, 512, 512), (3000, 4, 1001), (1000, 1000, 1000), (1, 4096, 4096)),
    *((64, 128, 16384), (2, 8192, 1024), (8192, 16, 512), (4096, 16, 4096)),
    *((4096, 2048, 64), (2000, 3001, 30)),
)


PLAIN, BATCHES = "none", (1, 1, 1, 3)


RACED = "sm_90"
"""The architecture whose kernels are raced."""


SHARES = {"portfolio": 3, "records": 10}
"""Every third member of the portfolio and every tenth winner of the records is compiled."""


_PARAMETER = re.compile(r"c\[0x0\]\[0x[0-9a-f]+\]")


_NAMES = (".strtab", ".shstrtab", ".symtab")
"""Sections of a cubin that have its names, or depend on how long these are."""


_LINE = re.compile(r"^(\.L_x_\d+):|^\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", re.MULTILINE)


CONSTANT_LOADS = ("LDC", "LDCU", "ULDC")


LOADS = ("LDG", "LDGSTS", "LDS", "LDSM", "LDL", "UTMALDG", *CONSTANT_LOADS)


CONSOLE = Console(width=120)


app = typer.Typer(pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Case:
    """A launch of a configuration: a problem on an architecture, and the place in its plan."""

    arch: str
    problem: str
    config: str
    launch: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return sha256("\n".join(map(str, asdict(self).values())).encode()).hexdigest()[:16]


@app.command("compile")
def compile_folder(
    folder: Annotated[Path, typer.Argument(help="Folder for the cubins.")],
    archs: Annotated[list[str] | None, typer.Option("--arch", help="Architectures.")] = None,
    whole: Annotated[
        bool, typer.Option("--all", help="All members and winners, not a draw.")
    ] = False,
    races: Annotated[bool, typer.Option(help="The kernels that are raced, alone.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Programs compiled at a time.")] = 1,
) -> None:
    """Compiles the kernels of this checkout into a folder."""
    disassembler()
    folder.mkdir(parents=True, exist_ok=True)
    programs: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    for arch in [RACED] if races else archs or DEVICES:
        began, device = monotonic(), find(DEVICES[arch])
        raced = [*cases(device)]
        drawn = [] if races else pairs(device, {} if whole else SHARES)
        wanted = templates(arch, [*raced, *drawn])
        with ThreadPoolExecutor(jobs) as pool:
            rows = [*pool.map(partial(compiled, folder=folder), wanted.items())]
        if arch == RACED:
            entries = [race(pair, wanted) for pair in raced]
        programs += rows
        failed = [row["reason"] for row in rows if "reason" in row]
        seconds = monotonic() - began
        CONSOLE.print(f"{arch}: {len(rows)} programs, {len(failed)} failed, {seconds:.0f} s")
        text = json.dumps({"programs": programs, "race": entries}, indent=1)
        write_whole(folder / FILE, (text + "\n").encode())


def pairs(device: Device, shares: Mapping[str, int]) -> list[tuple[Problem, Config]]:
    """Members of the portfolio and winners of records: one in each `shares`, or all by default."""
    listed = [*members(device)][:: shares.get("portfolio", 1)]
    return [*listed, *[*winners(device)][:: shares.get("records", 1)]]


def templates(arch: str, pairs: Iterable[tuple[Problem, Config]]) -> dict[Template, Case]:
    """The programs of configurations, each with the first case that needs it."""
    wanted: dict[Template, Case] = {}
    for problem, config in pairs:
        for place, launch in enumerate(registry.plan(config, problem).launches):
            case = Case(arch, str(problem), str(config), place)
            wanted.setdefault(launch.template, case)
    return wanted


def race(pair: tuple[Problem, Config], wanted: Mapping[Template, Case]) -> dict[str, Any]:
    """A configuration that is raced, with the names of its programs."""
    problem, config = pair
    launches = registry.plan(config, problem).launches
    names = [wanted[launch.template].name for launch in launches]
    return {"problem": str(problem), "config": str(config), "programs": names}


def members(device: Device) -> Iterator[tuple[Problem, Config]]:
    """The members of the portfolio, each adapted to one of the problems in turn."""
    for compute in PRECISIONS:
        asked = [(problem, Adaptation(problem, device)) for problem in problems(compute)]
        for place, member in enumerate(nearest.members_of(asked[0][0], device)):
            turn = place % len(asked)
            turned = [*asked[turn:], *asked[:turn]]
            adapted = ((problem, adaptation(member)) for problem, adaptation in turned)
            yield from islice(((problem, config) for problem, config in adapted if config), 1)


def problems(compute: str) -> Iterator[Problem]:
    """Problems of a precision in all layouts, with drawn epilogues, scales, outputs and batches;
    always the same."""
    random, precision = Random(compute), PRECISIONS[compute]
    outputs = [element.name for element in precision.outputs]
    for layout, sizes in product(LAYOUTS, SIZES):
        problem = None
        while problem is None:
            with suppress(ProblemError):  # words that exclude each other
                problem = Problem(
                    *sizes,
                    compute,
                    layout,
                    epilogue=random.choice((PLAIN, random.choice(EPILOGUES))),
                    scale=random.choice(precision.scales),
                    output=random.choice((outputs[0], random.choice(outputs))),
                    batch=random.choice(BATCHES),
                )
        yield problem


def winners(device: Device) -> Iterator[tuple[Problem, Config]]:
    """The fastest configurations, hot and cold, of the architecture's records, by family."""
    fastest = {
        (str(record.problem), str(config)): (record.problem, config)
        for record in shipped.records_where(lambda card: card.arch == device.arch)
        for config in (record.best.config, record.best_by("cold").config)
        if is_legal(config, record.problem, record.device)
    }
    yield from sorted(
        fastest.values(), key=lambda pair: (pair[1].family, pair[0].compute, str(pair[0]))
    )


def compiled(item: tuple[Template, Case], folder: Path) -> dict[str, Any]:
    """The row of a program, whose cubin goes into the folder."""
    template, case = item
    row = {"name": case.name, "kernel": template.kernel, **asdict(case)}
    program = compiler.compile(template, case.arch, cache=None, here=True)
    if isinstance(program, CompileFailure):
        return {**row, "reason": program.reason}
    path = folder / f"{case.name}.cubin"
    path.write_bytes(program.cubin)
    return {**row, **resources(program), **instructions(path)}


def resources(program: Program) -> dict[str, Any]:
    """What the compiler states of a program, and the hash of its cubin."""
    header = {**asdict(ProgramHeader.of(program)), "target": program.arch}
    del header["log"]
    return {**header, "cubin": digest(program.cubin)}


def digest(cubin: bytes) -> str:
    """The hash of a cubin. NVRTC names unnamed namespaces anew in each compilation: a cubin with
    such names is hashed without the sections that depend on them."""
    if b"_GLOBAL__N_" not in cubin:
        return sha256(cubin).hexdigest()
    kept = {name: data for name, data in sections(cubin).items() if name not in _NAMES}
    return sha256(b"".join(name.encode() + data for name, data in kept.items())).hexdigest()


def instructions(path: Path) -> dict[str, Any]:
    """The figures of a cubin's disassembly."""
    text = subprocess.run(
        [disassembler(), "-c", str(path)], capture_output=True, text=True, check=True
    ).stdout
    return figures(text)


def disassembler() -> str:
    """The path of `nvdisasm`.

    Raises:
        SystemExit: if it is not installed.
    """
    package = find_spec("nvidia")
    roots = (package and package.submodule_search_locations) or ()
    places = [os.environ.get("PATH", ""), *(str(Path(root, "cu13", "bin")) for root in roots)]
    path = shutil.which("nvdisasm", path=os.pathsep.join(places))
    if path is None:
        raise SystemExit("nvdisasm is missing; run `pip install nvidia-cuda-nvdisasm`")
    return path


def figures(text: str) -> dict[str, Any]:
    """The counts of instructions in a disassembly, all and in loops, and the hash of the code."""
    code, labels, spans = list[str](), dict[str, int](), list[tuple[int, int]]()
    for match in _LINE.finditer(text):
        if match[1]:
            labels[match[1]] = len(code)
            continue
        code.append(match[2])
        back = re.search(r"\bBRA\b.*?`\((\.L_x_\d+)\)", match[2])
        if back and labels.get(back[1], len(code)) < len(code) - 1:
            spans.append((labels[back[1]], len(code)))
    looped = {place for start, end in spans for place in range(start, end)}
    masked = "\n".join(_PARAMETER.sub("c[0x0][*]", line) for line in code)
    return {
        "code": sha256(masked.encode()).hexdigest(),
        "counts": counts(code),
        "loops": counts([code[place] for place in sorted(looped)]),
    }


def counts(code: Sequence[str]) -> dict[str, int]:
    """Counts of instructions, of reads of a kernel parameter, and of loads by their kind."""
    names = [re.sub(r"^@!?U?P\w+\s+", "", line).partition(" ")[0].split(".")[0] for line in code]
    kinds = Counter(names)
    return {
        "instructions": len(code),
        "parameters": sum("c[0x0]" in line for line in code),
        **{name: kinds[name] for name in LOADS if kinds[name]},
    }


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="Folder of one checkout.")],
    after: Annotated[Path, typer.Argument(help="Folder of the other.")],
    show: Annotated[int, typer.Option(min=0, help="Most programs listed.")] = 20,
) -> None:
    """Prints how the machine code of two checkouts differs. Status 1 if a program is in one folder
    alone, or takes more registers or spills than before."""
    rows = [{row["name"]: row for row in content(at)["programs"]} for at in (before, after)]
    alone = [len(rows[0].keys() - rows[1].keys()), len(rows[1].keys() - rows[0].keys())]
    pairs = [(rows[0][name], rows[1][name]) for name in rows[0] if name in rows[1]]
    CONSOLE.print(f"{len(pairs)} programs; {alone[0]} only before, {alone[1]} only after")
    CONSOLE.print(table(pairs))
    worse = sorted(filter(is_worse, pairs), key=growth, reverse=True)
    for pair in worse[:show]:
        CONSOLE.print(line(pair), markup=False, highlight=False, soft_wrap=True)
    if any(alone) or worse:
        raise typer.Exit(1)


Pair = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A program's row before and after."""


def is_worse(pair: Pair) -> bool:
    """Whether a program takes more registers or spills, or does not compile any more."""
    before, after = pair
    if "reason" in before or "reason" in after:
        return "reason" in after and "reason" not in before
    return bool(after["registers"] > before["registers"] or after["spills"] > before["spills"])


def growth(pair: Pair) -> tuple[int, int]:
    """By how many bytes of spills and how many registers a program has grown."""
    before, after = pair
    return (
        after.get("spills", 0) - before.get("spills", 0),
        after.get("registers", 0) - before.get("registers", 0),
    )


def line(pair: Pair) -> str:
    """A program whose resources differ, in one line."""
    before, after = pair
    if "reason" in after:
        return f"{before['target']} {before['kernel']} {before['problem']}: {after['reason']}"
    loads = [sum(row["loops"].get(name, 0) for name in CONSTANT_LOADS) for row in pair]
    figures = ", ".join(
        f"{name} {before[name]} -> {after[name]}" for name in ("registers", "spills")
    )
    loops = f"constant loads in loops {loads[0]} -> {loads[1]}"
    return (
        f"{before['target']} {before['kernel']} {figures}, {loops}: {before['name']} "
        f"{before['problem']} {before['config']}"
    )


def table(pairs: Iterable[Pair]) -> Table:
    """A row for each kernel and architecture."""
    shown = Table()
    names = ("kernel", "arch", "programs", "same cubin", "same code", "registers", "spills")
    for name in (*names, "instructions", "in loops", "loads", "const. in loops"):
        shown.add_column(name, justify="left" if name in names[:2] else "right")
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        if not any("reason" in row for row in pair):
            groups.setdefault((pair[0]["kernel"], pair[0]["target"]), []).append(pair)
    for (kernel, target), group in sorted(groups.items()):
        same = [sum(a[key] == b[key] for a, b in group) for key in ("cubin", "code")]
        shown.add_row(
            *(kernel, target, str(len(group)), *map(str, same)),
            *(changes([b[key] - a[key] for a, b in group]) for key in ("registers", "spills")),
            percent(group, "counts", ("instructions",)),
            percent(group, "loops", ("instructions",)),
            percent(group, "counts", LOADS),
            changes(
                [
                    total(b, "loops", CONSTANT_LOADS) - total(a, "loops", CONSTANT_LOADS)
                    for a, b in group
                ]
            ),
        )
    return shown


def changes(differences: Sequence[int]) -> str:
    """How many programs take more and less, and the largest difference."""
    more, less = (sum(sign * each > 0 for each in differences) for sign in (1, -1))
    if not more and not less:
        return "="
    return f"{more} more, {less} less, most {max(differences):+d}"


def percent(group: Sequence[Pair], key: str, names: Sequence[str]) -> str:
    """The change of all programs' instructions of some names, in percent."""
    before, after = (sum(total(pair[side], key, names) for pair in group) for side in (0, 1))
    return "=" if before == after else f"{100 * (after / max(before, 1) - 1):+.2f} %"


def total(row: Mapping[str, Any], key: str, names: Sequence[str]) -> int:
    """The instructions of some names in a program, or in its loops."""
    return sum(row[key].get(name, 0) for name in names)


if __name__ == "__main__":
    app()
