"""Counts the shipped records that are stale, and stamps those whose machine code is the same.

    python scripts/fit/stale.py count             as `make check` does; no compiler is needed
    python scripts/fit/stale.py count --refuse    as `make wheel` does: fails if a record is stale
    python scripts/fit/stale.py count --named     names them
    python scripts/fit/stale.py stamp             stamps records of the same code, lists the others

`stamp` compiles the configurations of a record with the tree that made it and with this one. That
tree is the commit whose kernel sources have the record's hash. It needs NVRTC and the history, and
no GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from derived import write

from autotune import settings
from autotune.cuda.program import code_digest
from autotune.families.source_text import hash_of
from autotune.measure import targets
from autotune.records import Entry, Record, bundle, shipped
from autotune.records.inventory import restamped
from autotune.records.merging import stale, winners_of

app = typer.Typer(pretty_exceptions_enable=False)
ROOT = Path(__file__).resolve().parents[2]
# Runs in any tree: prints the hashes of its kernel sources, then the programs of each case.
COMPILE = """
import importlib, json, os, sys
from concurrent.futures import ThreadPoolExecutor
def having(name, *modules):
    for module in modules:
        try: found = importlib.import_module("autotune." + module)
        except ImportError: continue
        if hasattr(found, name): return found
registry = having("plan", "families.registry", "families")
compiler = having("compile", "cuda.compiler", "compiler")
source_hash = having("source_hash", "cuda.program", "compiler").source_hash
Config = having("Config", "families.config", "config").Config
from autotune.problem import Problem
if hasattr(registry, "kernel_sources"): listed = registry.kernel_sources()
else: listed = having("KERNEL_SOURCES", "targets").KERNEL_SOURCES
hashes = {"": source_hash(*listed)}
for name, family in getattr(registry, "FAMILIES", {}).items():
    if hasattr(family, "sources"): hashes[name] = source_hash(*family.sources)
print(json.dumps(hashes), flush=True)
def compiled(line):
    problem, config, arch = json.loads(line)
    try:
        plan = registry.plan(Config.parse(config), Problem.parse(problem))
        made = [compiler.compile(each.template, arch, cache=None) for each in plan.launches]
        return [[p.cubin.hex(), p.registers, p.shared] for p in made]
    except Exception: return []
with ThreadPoolExecutor(os.cpu_count()) as threads:
    for programs in threads.map(compiled, sys.stdin): print(json.dumps(programs), flush=True)
"""
Case = tuple[str, str, str]  # problem, configuration and architecture


ANYWAY = "AUTOTUNE_SHIP_STALE"
AGAIN = (
    "`python scripts/fit/stale.py stamp` keeps those of the same machine code; `python "
    "scripts/measure/shipped.py retime` measures the others on their card (docs/maintainer.md)"
)


@app.command()
def count(
    refuse: Annotated[bool, typer.Option("--refuse", help="Fail if a record is stale.")] = False,
    named: Annotated[bool, typer.Option("--named", help="Name the stale records.")] = False,
) -> None:
    """Counts stale shipped records; with --refuse, AUTOTUNE_SHIP_STALE=1 lets them pass."""
    today, records = targets.here(), [*shipped.records_where(lambda _: True)]
    old = [record for record in records if stale(record, today)]
    cards = Counter(record.device.name for record in old)
    if named:
        print(*(f"{record.device.name} {record.title}\n" for record in old), sep="", end="")
    counts = ", ".join(f"{stale} of {name}" for name, stale in sorted(cards.items()))
    print(f"{len(records)} shipped records, {sum(cards.values())} stale{counts and f': {counts}'}")
    if cards:
        print(AGAIN)
    if cards and refuse and os.environ.get(ANYWAY) != "1":
        raise SystemExit(f"stale records are not shipped; {ANYWAY}=1 builds anyway")


@app.command()
def stamp() -> None:
    """Stamps records in the shipped files, and lists those whose code changed."""
    today = targets.here()
    for path in shipped.paths(settings.shipped_dir()):
        content = bundle.loads(path.read_bytes())
        new = [*stamped(content.records)]
        left = [record for record in new if stale(record, today)]
        same = sum(stale(record, today) is not None for record in content.records) - len(left)
        if same:
            path.write_bytes(b"".join(bundle.written(bundle.Bundle(new, content.ranges))))
            write(path)
        print(f"{path.name}: {len(new)} records, {same} stamped, {len(left)} stale")
        print(*(f"  {record.title} {record.best.config}\n" for record in left), sep="", end="")


def stamped(records: Sequence[Record]) -> Iterator[Record]:
    """The records, with today's sources where the machine code is the same."""
    today, codes = targets.here(), dict[tuple[str, Case], str]()
    rest = [record for record in records if stale(record, today)]

    def same(record: Record, entry: Entry) -> bool:
        return bool(codes.get(made(record, entry)))

    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        git(ROOT, "worktree", "add", "--detach", "--quiet", str(tree))
        try:
            kernels = ((each, e) for each in rest for e in each.entries if not e.library)
            commits = [*commits_of({made(each, entry)[0] for each, entry in kernels}, tree)]
            for first in (True, False):
                chosen = [(r, winners_of(r) if first else r.entries) for r in rest]
                wanted = {made(record, entry) for record, own in chosen for entry in own}
                for source, commit in commits:
                    cases = [case for own, case in wanted - codes.keys() if own == source]
                    git(tree, "checkout", "--quiet", "--detach", commit)
                    pairs = zip(cases, *(built(at, cases)[1] for at in (tree, ROOT)), strict=True)
                    codes |= {(source, case): old * (old == new) for case, old, new in pairs}
                rest = [each for each in rest if restamped(each, today, partial(same, each))]
        finally:
            git(ROOT, "worktree", "remove", "--force", str(tree))
    for record in records:
        new = (record in rest and restamped(record, today, partial(same, record))) or record
        entries = [replace(e, code=codes.get(made(record, e), e.code)) for e in new.entries]
        yield replace(new, entries=tuple(entries))


def made(record: Record, entry: Entry) -> tuple[str, Case]:
    """What an entry was compiled from: the hash of its sources, and its case."""
    source = hash_of(record.provenance.source, entry.config.family)
    return source, (str(record.problem), str(entry.config), record.device.arch)


def commits_of(sources: set[str], tree: Path) -> Iterator[tuple[str, str]]:
    """The latest commit with each of these hashes of kernel sources."""
    for commit in git(ROOT, "log", "--full-history", "--format=%H", "--", "cuda_src").split():
        if sources:
            git(tree, "checkout", "--quiet", "--detach", commit)
            own = sources & built(tree, [])[0]
            yield from ((source, commit) for source in own)
            sources = sources - own
    if sources:
        print(f"no commit has the kernel sources {', '.join(sorted(sources))}")


def built(tree: Path, cases: Sequence[Case]) -> tuple[set[str], list[str]]:
    """The hashes of a tree's kernel sources, and of each case's machine code; empty if it fails."""
    text, env = "".join(json.dumps(case) + "\n" for case in cases), {"PYTHONPATH": str(tree)}
    log = None if cases else subprocess.DEVNULL  # a tree before these modules prints nothing
    run = partial(subprocess.run, cwd=tree, env=os.environ | env, text=True, stderr=log, stdout=-1)
    out = run([sys.executable, "-c", COMPILE], input=text).stdout
    hashes, *lists = map(json.loads, out.splitlines() or ["{}"])
    programs: list[list[Any]] = [
        [SimpleNamespace(cubin=bytes.fromhex(c), registers=r, shared=s) for c, r, s in row]
        for row in lists
    ]
    return {*hashes.values()}, [code_digest(each) for each in programs or [[] for _ in cases]]


def git(place: Path, *arguments: str) -> str:
    """The output of a command of git."""
    return subprocess.check_output(["git", "-C", str(place), *arguments], text=True)


if __name__ == "__main__":
    app()
