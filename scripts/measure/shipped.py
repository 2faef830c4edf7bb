"""Tunes many problems on this machine's GPU and writes its shipped records.

    python scripts/measure/shipped.py tune --seconds 500 --each 3.5

writes `autotune/data/shipped/<device>.jsonl.xz`: the shapes of `suite.py` in every precision, and
the linear layers of well-known models as PyTorch has them, `x @ W.T` (layout nt), for 1 to 8192
rows.

The problems are ordered so that an early end leaves a useful set: suite and models alternate, by
precision and size. Problems that the file already has for the current kernels are skipped unless
`--again` is given, so a run continues where the last one ended. The file is written every few
problems. All problems share the compiled programs and the two processes that measure: starting
these takes longer than a search.

Searches start from the records of neighbouring problems: those in the file, the shipped ones, and
the trials of earlier kernels under `docs/results`. These are only guesses: every bundled record was
measured by this run or by one that it continues. The f16 twin of a bf16 problem starts from its
winners and gets `--twin` of the time.

    python scripts/measure/shipped.py retime new.jsonl.xz --devices all --seconds 240

times the stale shipped records of this card again (`scripts/fit/stale.py` counts them), or with
`--again` all of them, those beside the oldest cuBLAS first. It compiles the programs of a hundred
on all cores.
Then each GPU takes one record after the other, verifies its best configurations and times them
beside cuBLAS. At last records slower than cuBLAS, or without a working configuration, are tuned for
`--each` seconds. The bundle is written every few records. A second run continues it.

    python scripts/measure/shipped.py take FILE...

merges the records of `retime`, of `suite.py --records`, or of users (`autotune cache export
--submit`) into the shipped files of their cards, in place of stale ones and of those whose winner
they timed again. It needs no GPU.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer
from results import read
from rich.console import Console
from rich.table import Table
from suite import SUITE, add_records, jobs_of, side_by_side

from autotune import cores, settings
from autotune.cuda import compiler
from autotune.cuda.program import Program
from autotune.errors import AutotuneError, ConfigError, UsageError
from autotune.families import registry
from autotune.families.config import Config
from autotune.files import write_whole
from autotune.measure import devices, targets
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Origin, Recording
from autotune.measure.targets import Target, TargetOpener
from autotune.problem import COMPUTES, Problem
from autotune.records import Entry, Provenance, Record, Store, bundle, exchange, shipped
from autotune.records.merging import agreed_sources, made_from, merge, reconcile, stale
from autotune.tuning import retiming
from autotune.tuning.loop import Search, tune
from autotune.tuning.pipeline import SPILL_LIMIT
from autotune.tuning.tunable import GemmTunable

TRIALS = Path("docs/results/h100/trials.zip")


WRITTEN_EACH = 10


BATCH = 100
"""Stale records whose programs are compiled before the first of them is timed."""


UNKNOWN = Origin("", "", "")
"""The tools of this machine where the only record of a problem is put into an empty store."""


CONSOLE = Console(width=110, soft_wrap=True)


def main(
    seconds: Annotated[float, typer.Option(help="Total seconds for all problems.")] = 3600.0,
    each: Annotated[float, typer.Option(help="Tuning seconds for each problem.")] = 10.0,
    twin: Annotated[float, typer.Option(help="Share of --each for f16 after bf16.")] = 0.6,
    computes: Annotated[
        list[str] | None, typer.Option("--compute", help="Tune only these precisions.")
    ] = None,
    only: Annotated[str, typer.Option(help="Tune only problems whose text contains this.")] = "",
    device: Annotated[str, typer.Option(help="Device, as for `autotune tune`.")] = devices.DEFAULT,
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default the package's.")
    ] = None,
    trials: Annotated[
        Path, typer.Option(help="Folder or archive of recordings to start searches from.")
    ] = TRIALS,
    again: Annotated[bool, typer.Option("--again", help="Tune recorded problems again.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Tunes and bundles; status 1 if a problem has no result."""
    began = monotonic()
    where = targets.resolve(device)
    path = out or settings.shipped_dir() / f"{where.slug}.jsonl.xz"
    wanted = [problem for problem in problems(checked(computes)) if only in str(problem)]
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        TargetOpener(device, seed=seed) as places,
    ):
        file = ShippedFile(path, Store(Path(name) / "store"), targets.here().source)
        file.resume(best_of_recordings(trials), Path(name) / "shipped")
        failed, left = [], [problem for problem in wanted if again or not file.has(problem)]
        CONSOLE.print(f"{len(wanted) - len(left)} of {len(wanted)} problems are there already")
        for number, problem in enumerate(left, 1):
            if monotonic() - began + each > seconds:
                CONSOLE.print(
                    f"{seconds:.0f} s are over: {len(left) - number + 1} problems are left"
                )
                break
            budget = each * (twin if file.has_twin(problem) else 1.0)
            if not tuned(problem, places, file, Search(seconds=budget, seed=seed)):
                failed.append(problem)
            if number % WRITTEN_EACH == 0:
                file.write()
        file.write()
        CONSOLE.print(table(file.records))
    size = path.stat().st_size if path.exists() else 0
    CONSOLE.print(f"{path}: {len(file.records)} problems, {size:,} bytes")
    if failed:
        CONSOLE.print("no result:", ", ".join(map(str, failed)), style="red")
        raise typer.Exit(1)


def retime(
    out: Annotated[Path, typer.Argument(help="Bundle to write or continue.")],
    device_numbers: Annotated[str, typer.Option("--devices", help="GPUs: 0,1 or all.")] = "0",
    seconds: Annotated[float, typer.Option(help="No record starts after these seconds.")] = 3600.0,
    top: Annotated[int, typer.Option(min=1, help="Configurations of a record.")] = 2,
    each: Annotated[float, typer.Option(help="Tuning seconds of slow records.")] = 2.5,
    only: Annotated[str, typer.Option(help="Only problems whose text contains this.")] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Time records that are not stale too.")
    ] = False,
) -> None:
    """Times the stale shipped records of this card again; status 1 if some are left."""
    ends, today = monotonic() + seconds, targets.here()
    gpus = [*devices.numbered(device_numbers)]
    card = targets.resolve(gpus[0])
    earlier = _records_in(out) if out.exists() else ()
    new = {record.problem: record for record in earlier if not stale(record, today)}
    left = [
        record
        for record in shipped.records(card)
        if (again or stale(record, today))
        and only in str(record.problem)
        and record.problem not in new
    ]
    left.sort(key=cublas_of)
    kind = "records" if again else "stale records"
    CONSOLE.print(f"{len(left)} {kind} of {card.name}, {len(new)} measured again already")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        store, options = Store(Path(name)), Search(seconds=each, jobs=jobs_of(gpus))
        timed = partial(timed_again, store=store, top=top)
        ready = compiled_ahead(left, card.arch, top, ends)
        collect(side_by_side(ready, gpus, ends, timed), new, out)
        behind = [record for record in left if record.problem not in new]
        behind += sorted((record for record in new.values() if ratio(record) < 1), key=ratio)
        tuned = partial(tuned_again, store=store, options=options)
        collect(side_by_side(behind, gpus, ends, tuned), new, out)
    missing = [record for record in left if record.problem not in new]
    CONSOLE.print(f"{out}: {len(new)} records; {len(missing)} are left")
    if missing:
        raise typer.Exit(1)


def compiled_ahead(records: Sequence[Record], arch: str, top: int, ends: float) -> Iterator[Record]:
    """The records, after the best `top` configurations of each that compile are compiled, for a
    batch at once on all cores.

    None starts after `ends`, a time of `time.monotonic`.
    """

    def compiles(config: Config, problem: Problem) -> bool:
        if monotonic() >= ends:
            return False
        try:
            launches = registry.plan(config, problem).launches
        except ConfigError:  # of an earlier version
            return False
        templates = [launch.template for launch in launches]
        programs = [compiler.compile(each, arch, cache=settings.cache_dir()) for each in templates]
        return all(isinstance(each, Program) and each.spills <= SPILL_LIMIT for each in programs)

    def build(record: Record) -> None:
        configs = iter(retiming.best_first(record))
        for _ in range(top):
            next((config for config in configs if compiles(config, record.problem)), None)

    for first in range(0, len(records), BATCH):
        batch = records[first : first + BATCH]
        with ThreadPoolExecutor(cores.available()) as pool:
            [*pool.map(build, batch)]
        CONSOLE.print(f"{len(batch)} records compiled, {ends - monotonic():.0f} s are left")
        yield from batch


def collect(
    measured: Iterable[tuple[Record, Record | str]], new: dict[Problem, Record], out: Path
) -> None:
    """Adds new records to `new` and, every few, to the bundle; prints a line for each."""
    fresh: list[Record] = []
    for old, made in measured:
        if isinstance(made, str):
            CONSOLE.print(f"{old.problem}: {made}", style="red", markup=False)
            continue
        new[old.problem] = made
        fresh.append(made)
        CONSOLE.print(change(old, made), markup=False, highlight=False)
        if len(fresh) == WRITTEN_EACH:
            add_records(out, fresh)
            fresh.clear()
    if fresh:
        add_records(out, fresh)


def timed_again(record: Record, opener: TargetOpener, *, store: Store, top: int) -> Record | str:
    """The record with its best `top` configurations timed anew, or why there is none."""
    compiled = partial(compiler.compile, cache=settings.cache_dir())

    @contextmanager
    def opened(problem: Problem) -> Iterator[Target]:
        yield opener.target(problem)

    try:
        store.adopt(record, UNKNOWN)
        (result,) = retiming.retime([record], opened, store, compiled, top=top)
    except AutotuneError as error:
        return str(error)
    return result.new or result.trouble or "no configuration works any more"


def tuned_again(
    record: Record, opener: TargetOpener, *, store: Store, options: Search
) -> Record | str:
    """The record of a search, which starts from the record; or why there is none."""
    try:
        store.adopt(record, UNKNOWN)
        return tune_at(record.problem, opener, store, options)
    except AutotuneError as error:
        return str(error)


def cublas_of(record: Record) -> tuple[int, ...]:
    """The version of cuBLAS that the record has a time of, such as (13, 10, 0)."""
    version = record.baseline.library if record.baseline else ""
    return tuple(map(int, version.split("."))) if version else ()


def ratio(record: Record) -> float:
    """cuBLAS's time over the record's; infinite if cuBLAS was not timed."""
    theirs = record.baseline
    return theirs.time_us / record.best.measurement.time_us if theirs else math.inf


def change(old: Record, new: Record) -> str:
    """A record measured again in one line, beside its earlier time and ratio to cuBLAS."""
    before_us = old.best.measurement.time_us
    return f"{line(new, new.provenance.seconds)} was {before_us:.2f} us: {ratio(old):.3f}"


def take(
    files: Annotated[list[Path], typer.Argument(help="Bundles of new records.")],
    folder: Annotated[
        Path | None, typer.Option(help="Folder of shipped files; by default the package's.")
    ] = None,
) -> None:
    """Merges new records into the shipped files of their cards."""
    today = targets.here()
    for file in files:
        try:
            content = bundle.loads(file.read_bytes())
            if content.submission is None:
                raise UsageError("it says nothing of its card; `cache export --submit` writes one")
            exchange.submitted(content, today, "")  # checks the records again
        except (ValueError, UsageError) as error:
            raise typer.BadParameter(f"{file}: {error}") from error
        for path, count in put(content.records, folder or settings.shipped_dir(), today):
            CONSOLE.print(f"{path}: {count} records changed", highlight=False)
        CONSOLE.print(f"{content.submission}; run scripts/fit/derived.py", markup=False)


def put(new: Sequence[Record], folder: Path, today: Origin) -> Iterator[tuple[Path, int]]:
    """Merges records of one card into its shipped files, each into the file that has its problem,
    the rest into the card's own; yields the files that change, with the number of records."""
    slug = new[0].device.slug
    own, left = folder / f"{slug}.jsonl.xz", {record.problem: record for record in new}
    for path in (*(path for path in shipped.paths(folder) if path != own), own):
        old = bundle.loads(path.read_bytes()) if path.exists() else bundle.Bundle(())
        merged = [
            rounded(settled(record, left.pop(record.problem), today))
            if record.device.slug == slug and record.problem in left
            else record
            for record in old.records
        ]
        merged += map(rounded, left.values()) if path == own else ()
        changed = len({*merged} - {*old.records})
        if changed:
            folder.mkdir(parents=True, exist_ok=True)
            merged.sort(key=lambda record: record.problem)
            write_whole(path, bundle.dumps(merged, old.ranges))
            yield path, changed


def settled(old: Record, new: Record, today: Origin) -> Record:
    """The new record, with slower entries of the old one, if it timed the old winner again: times
    of two runs, with other clocks and perhaps another cuBLAS, do not compare. Else what both make.
    """
    if old.best.config not in {entry.config for entry in new.entries}:
        return reconcile(old, new, today)
    # The new record names the sources of its own families alone.
    made = replace(new.provenance, source=agreed_sources(old, new, today))
    return merge(old, replace(new, provenance=made))


def checked(computes: list[str] | None) -> list[str] | None:
    """The precisions, if all of them exist."""
    if unknown := {*(computes or ())} - {*COMPUTES}:
        raise typer.BadParameter(f"unknown compute {', '.join(sorted(unknown))}")
    return computes


def tuned(problem: Problem, places: TargetOpener, file: ShippedFile, options: Search) -> bool:
    """Tunes a problem into the file and prints a line; returns whether it worked."""
    began = monotonic()
    try:
        record = tune_at(problem, places, file.store, options)
    except AutotuneError as error:
        CONSOLE.print(f"{problem}: {error}", style="red", markup=False)
        return False
    file.add(record)
    CONSOLE.print(line(record, monotonic() - began), markup=False, highlight=False)
    return True


def tune_at(problem: Problem, places: TargetOpener, store: Store, options: Search) -> Record:
    """Tunes a problem on the reused target with the shared program cache.

    Raises:
        AutotuneError: if nothing could be measured.
    """
    target = places.target(problem)
    return tune(
        *(GemmTunable(problem), target.runner, store, options),
        compile=partial(compiler.compile, cache=settings.cache_dir()),
        origin=target.origin,
    )


def line(record: Record, seconds: float) -> str:
    """A record in one line.

    Such as `16x4096x4096:bf16:nt  7.51 us, cuBLAS 8.95 us: 1.192  (3.1 s, 120 trials)`.
    """
    ours, theirs = record.best.measurement.time_us, record.baseline
    beside = f", cuBLAS {theirs.time_us:.2f} us: {theirs.time_us / ours:.3f}" if theirs else ""
    effort = f"({seconds:.1f} s, {record.provenance.trials} trials)"
    return f"{record.problem!s:28} {ours:9.2f} us{beside}  {effort}"


TIME_DIGITS = 4
"""Significant digits of shipped times: 0.5 per mille at most, below most spreads."""
DIGITS = 3
"""Significant digits of shipped spreads, errors and shares."""
TIMES = ("time_us", "cold_us")


def best_of_recordings(folder: Path) -> list[Record]:
    """The ten fastest rows of each recording in a folder, as records."""
    recordings = read(folder)
    records = map(record_of, recordings)
    return [record for record in records if record is not None]


def record_of(recording: Recording, *, most: int = 10) -> Record | None:
    """The fastest rows of a recording as a record; None if no row has a time."""
    entries = [
        Entry(row.config, row.outcome, row.resources, resident.occupancy, resident.limiter)
        for row in recording.rows
        if isinstance(row.outcome, Measurement) and row.resources.threads  # not of a library
        if (resident := row.resources.occupancy(recording.device))
    ]
    if not entries:
        return None
    entries.sort(key=lambda entry: (entry.measurement.time_us, str(entry.config)))
    origin = recording.origin
    provenance = Provenance(
        *(origin.driver, origin.compiler, origin.source, "", recording.date),
        seed=0,
        trials=len(recording.rows),
        seconds=0.0,
    )
    return Record(
        *(recording.device, "measured", tuple(entries[:most]), recording.baseline, provenance),
        recording.problem,
    )


def rounded(record: Record) -> Record:
    """The record with times, spreads, errors and shares rounded."""
    entries = tuple(
        replace(
            entry,
            measurement=_rounded(entry.measurement),
            occupancy=_round(entry.occupancy, DIGITS),
        )
        for entry in record.entries
    )
    return replace(
        record,
        entries=entries,
        baseline=record.baseline and _rounded(record.baseline),
        provenance=replace(record.provenance, seconds=_round(record.provenance.seconds, DIGITS)),
    )


def table(records: Iterable[Record]) -> Table:
    """A row for each precision: cuBLAS's times over those of the records."""
    ratios: dict[str, list[float]] = {}
    for record in records:
        if record.baseline is not None:
            ratios.setdefault(record.problem.compute, []).append(ratio(record))
    shown = Table("compute", "problems", "geomean", "worst", "faster than cuBLAS")
    for compute, values in sorted(ratios.items()):
        mean = math.exp(sum(map(math.log, values)) / len(values))
        wins = sum(value > 1 for value in values)
        shown.add_row(compute, str(len(values)), f"{mean:.3f}", f"{min(values):.3f}", str(wins))
    return shown


@dataclass
class ShippedFile:
    """A bundle that grows record by record.

    Attributes:
        path: the file.
        store: the records of this run and of the runs that it continues.
        source: hashes of the current kernel sources, by family.
    """

    path: Path
    store: Store
    source: str

    def __post_init__(self) -> None:
        self._records: dict[Problem, Record] = {}

    @property
    def records(self) -> list[Record]:
        """The records, by problem."""
        return [self._records[problem] for problem in sorted(self._records)]

    def begin(self) -> tuple[Record, ...]:
        """Loads the file's records of the current kernels; returns all that it has."""
        own = _records_in(self.path) if self.path.exists() else ()
        for record in own:
            if made_from(record, self.source):
                self.add(self.store.save(record))
        return own

    def resume(self, guesses: Iterable[Record], folder: Path) -> None:
        """Loads the file's records of the current kernels.

        All others, `guesses` and the other shipped files become the shipped records of this
        process, in `folder`: searches start from them.
        """
        own = self.begin()
        beside = (path for path in shipped.paths(settings.shipped_dir()) if path != self.path)
        # Later records replace earlier ones.
        guessed = chain(chain.from_iterable(map(_records_in, beside)), guesses, own)
        latest = {(record.device, record.problem): record for record in guessed}
        folder.mkdir(parents=True)
        (folder / "guesses.jsonl.xz").write_bytes(bundle.dumps(latest.values()))
        os.environ["AUTOTUNE_SHIPPED_DIR"] = str(folder)

    def has(self, problem: Problem) -> bool:
        """Whether the problem is recorded."""
        return problem in self._records

    def has_twin(self, problem: Problem) -> bool:
        """Whether the problem is in f16 and recorded in bf16."""
        return problem.compute == "f16" and self.has(replace(problem, compute="bf16"))

    def add(self, record: Record) -> None:
        """Adds a record that is in the store."""
        self._records[record.problem] = record

    def write(self) -> None:
        """Writes the file, if there are records."""
        if self._records:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, bundle.dumps(map(rounded, self.records)))


def _records_in(path: Path) -> tuple[Record, ...]:
    return tuple(bundle.loads(path.read_bytes()).records)


def _rounded(measured: Measurement) -> Measurement:
    changed: dict[str, Any] = {
        name: _round(value, TIME_DIGITS if name in TIMES else DIGITS)
        for name, value in asdict(measured).items()
        if isinstance(value, float)
    }
    return replace(measured, **changed)


def _round(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


# Rows and columns of the weights, as PyTorch's `Linear` stores them. Query, key and value are one
# layer or three, gate and up are of one size; Mistral's 7B has the sizes of Llama's 8B.
MODELS = {
    "Llama 3 8B": ((6144, 4096), (4096, 4096), (14336, 4096), (4096, 14336), (1024, 4096)),
    "GPT-2": ((2304, 768), (768, 768), (3072, 768), (768, 3072)),
    "Qwen 2.5 7B": ((3584, 3584), (18944, 3584), (3584, 18944), (512, 3584)),
    "BERT large": ((1024, 1024), (4096, 1024), (1024, 4096)),
    "Llama 3 70B": ((8192, 8192), (28672, 8192), (8192, 28672), (1024, 8192)),
}
# Tokens a batch: the most different numbers come first.
ROWS = (16, 2048, 1, 128, 8192, 64, 512, 8)
# Models that are also tuned in the precisions of fp32 operands.
IN_FULL = ("GPT-2", "BERT large")
FULL_ROWS = (128, 2048)
PRECISIONS = ("f32", "bf16", "tf32", "f16")
"""Precisions of the suite; `tf32x3` comes last."""
EIGHT_BIT = ("f8:scale=tensor", "f8:scale=row", "i8:scale=tensor", "f8:scale=block", "f8:fast")
"""Precisions and scales of the 8-bit suite, in nt; layers of models have a scale a row."""
LAYER_EIGHT_BIT = "f8:scale=row"


def problems(computes: Sequence[str] | None = None) -> list[Problem]:
    """All problems, or those of some precisions; any prefix is a useful set."""
    # Suite and layers alternate while both last; a layer's bf16 and f16 count as one.
    suites, layers = suite(), list(models())
    turns = max(len(suites), len(layers))
    ordered = chain.from_iterable(
        (*suites[turn : turn + 1], *(layers[turn] if turn < len(layers) else ()))
        for turn in range(turns)
    )
    every = dict.fromkeys((*ordered, *eight_bit()))
    return [problem for problem in every if not computes or problem.compute in computes]


def eight_bit() -> list[Problem]:
    """The 8-bit suite, one kind after the other, and the models' layers between the kinds."""
    suites = ([Problem.parse(f"{text}:nt:{kind}") for text in SUITE] for kind in EIGHT_BIT)
    layers = [Problem.parse(f"{layer.shape}:nt:{LAYER_EIGHT_BIT}") for layer, *_ in models()]
    first, *others = suites
    unique = dict.fromkeys(layers)
    return [*first, *unique, *chain.from_iterable(others)]


def suite() -> list[Problem]:
    """The suite's problems: each shape in one precision before any shape in two."""
    shapes = [Problem.parse(text) for text in SUITE]
    rounds = [
        replace(shape, compute=PRECISIONS[(place + turn) % len(PRECISIONS)])
        for turn in range(len(PRECISIONS))
        for place, shape in enumerate(shapes)
    ]
    return rounds + [replace(shape, compute="tf32x3") for shape in shapes]


def models() -> Iterator[tuple[Problem, ...]]:
    """The models' layers, alternating between models: bf16 with its f16 twin, then the others."""
    most = max(map(len, MODELS.values()))
    for rows, place in product(ROWS, range(most)):
        for sizes in MODELS.values():
            if place < len(sizes):
                layer = Problem(rows, *sizes[place], "bf16", "nt")
                yield layer, replace(layer, compute="f16")
    for rows, compute, model in product(FULL_ROWS, ("tf32", "f32"), IN_FULL):
        for columns, inner in MODELS[model]:
            yield (Problem(rows, columns, inner, compute, "nt"),)


def bundle_recordings(
    recordings: Annotated[Path, typer.Argument(help="Folder or archive of recordings.")],
    out: Annotated[Path, typer.Argument(help="Bundle to write.")],
) -> None:
    """Writes the ten fastest rows of each recording as a record to OUT, unless another bundle of
    the folder has its problem."""
    recorded = {
        (record.device.slug, record.problem)
        for path in shipped.paths(out.parent)
        if path != out
        for record in bundle.loads(path.read_bytes()).records
    }
    records = [
        record
        for record in best_of_recordings(recordings)
        if (record.device.slug, record.problem) not in recorded
    ]
    out.write_bytes(bundle.dumps(map(rounded, records)))
    CONSOLE.print(table(records))
    CONSOLE.print(f"{out}: {len(records)} problems, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("tune")(main)
    app.command()(retime)
    app.command()(take)
    app.command("bundle")(bundle_recordings)
    app()
