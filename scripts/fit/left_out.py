"""Measures how good look-ups are for shapes that were never tuned.

    python scripts/fit/left_out.py docs/results/h100/trials.zip --fit \
        --learn docs/results/h100/trials.zip --learn docs/results/h200/trials.zip \
        --learn docs/results/h200/drawn.zip

needs no GPU. Each recorded problem is looked up from the records of the other recordings, without
those of the same sizes, and the time of the picked configuration is compared with the fastest
recorded one. The package's correction of the cost model has seen the problem; with `--learn` one is
trained on the recordings in those folders without the problem's neighbourhood. `--fit` writes the
losses to `autotune/data/expected_loss.json`, from which look-ups take their expected loss.
`untuned.py` measures look-ups of new shapes on a GPU.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.console import Console
from rich.table import Table

from autotune.device import Device
from autotune.families.config import Config
from autotune.lookup import nearest
from autotune.lookup.answer import expected_loss
from autotune.lookup.digest import RecordDigest, samples
from autotune.lookup.neighbours import TEACHERS, Pool
from autotune.measure import targets
from autotune.measure.measurement import Measurement
from autotune.measure.objective import HOT
from autotune.measure.recording import Recording
from autotune.model import cost
from autotune.model.model_error import ModelError

sys.path.append(str(Path(__file__).resolve().parents[1] / "measure"))

from correction import folds_of, samples_of, trained
from results import geomean, provenance, read
from shipped import record_of

LOSSES = Path("autotune/data/expected_loss.json")


FEWEST = 10
"""Problems with fewer recorded configurations are skipped: they cannot rank a choice."""


BINS = 3
"""Bins by standard deviation, with equally many look-ups each."""


def main(
    folder: Annotated[Path, typer.Argument(help="Folder or archive of recordings.")],
    learn: Annotated[
        list[Path] | None,
        typer.Option(help="Recordings to train the correction on; repeatable."),
    ] = None,
    fit: Annotated[
        bool, typer.Option("--fit", help="Fit the expected losses and write them.")
    ] = False,
    losses: Annotated[Path, typer.Option(help="JSON file that --fit writes.")] = LOSSES,
    out: Annotated[Path | None, typer.Option(help="JSON file for the rows.")] = None,
) -> None:
    """Leave each recorded problem out in turn and look it up."""
    recordings = read(folder)
    records = [record for recording in recordings if (record := record_of(recording)) is not None]
    rich = [recording for recording in recordings if len(times(recording)) >= FEWEST]
    rows, models = list[Row](), list[float]()
    for members in by_correction(rich, learn or []):
        digests = [*map(RecordDigest.of, records)]  # described with the correction of this part
        rows += [row_of(recording, digests) for recording in members]
        models += [by_model(recording) for recording in members]
    show(rows)
    SHOWN.print(f"the cost model alone: geomean {geomean(models):.3f}, worst {min(models):.3f}")
    if out is not None:
        write(out, rich[0].device, rows)
    if fit:
        source = f"scripts/fit/left_out.py, {len(rows)} problems recorded on {rich[0].device.name}"
        content = {"source": source, "losses": fitted(rows, models)}
        losses.write_text(json.dumps(content, indent=1) + "\n")


def by_correction(
    recordings: Sequence[Recording], learn: Sequence[Path]
) -> Iterator[Sequence[Recording]]:
    """The recordings in parts, during each of which the correction has not seen its shapes and
    their neighbours; all at once, with the package's correction, without folders to learn from."""
    if not learn:
        yield recordings
        return
    seen = [recording for place in learn for recording in read(place)]
    folds = folds_of([*recordings, *seen])
    samples = [sample for place, item in enumerate(seen) for sample in samples_of(place, item)]
    capability = recordings[0].device.compute_capability
    for fold in sorted({*folds[: len(recordings)].tolist()}):
        others = [item for item in samples if folds[len(recordings) + item.place] != fold]
        unseen = capability, trained(others)
        with patch.object(cost, "trained", return_value=unseen):
            yield [item for item, own in zip(recordings, folds, strict=False) if own == fold]


def row_of(recording: Recording, digests: Sequence[RecordDigest]) -> Row:
    """The row of a recorded problem, looked up from the records of other sizes."""
    problem, device, measured = recording.problem, recording.device, times(recording)
    sizes = problem.m, problem.n, problem.k
    rest = Pool(
        each for each in digests if (each.problem.m, each.problem.n, each.problem.k) != sizes
    )
    began = monotonic()
    resources = {row.config: row.resources for row in recording.rows}
    configs = [*measured]
    near = [record for _, record in rest.nearest(problem, device, TEACHERS)]
    errors = ModelError(device, samples(near, HOT))
    belief = errors.predict(configs, problem, [resources[config] for config in configs])
    place = int(belief.cautious(nearest.CAUTION).argmin())
    picked, deviation = configs[place], float(belief.deviations[place])
    best = min(measured, key=lambda config: measured[config])
    return Row(
        problem=str(problem),
        how="nearest",
        ratio=measured[best] / measured[picked],
        expected=expected_loss("near", deviation),
        deviation=deviation,
        picked=str(picked),
        best=str(best),
        picked_us=measured[picked],
        best_us=measured[best],
        lookup_s=monotonic() - began,
    )


def by_model(recording: Recording) -> float:
    """The ratio of the cost model's choice among the recorded configurations."""
    measured = times(recording)
    resources = {row.config: row.resources for row in recording.rows}
    configs = [*measured]
    belief = ModelError(recording.device).predict(
        configs, recording.problem, [resources[config] for config in configs]
    )
    return min(measured.values()) / measured[configs[int(belief.times.argmin())]]


def times(recording: Recording) -> dict[Config, float]:
    """The time in microseconds of each configuration that has one."""
    return {
        row.config: row.outcome.time_us
        for row in recording.rows
        if isinstance(row.outcome, Measurement)
    }


def fitted(rows: Sequence[Row], models: Sequence[float]) -> dict[str, Any]:
    """The mean loss by standard deviation, made non-decreasing, and that of the cost model."""
    ordered = sorted((row.deviation or 0.0, row.ratio) for row in rows)
    size = math.ceil(len(ordered) / BINS)
    bins = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    losses = [round(1 / geomean([ratio for _, ratio in pairs]) - 1, 3) for pairs in bins]
    rising = [max(losses[: place + 1]) for place in range(len(losses))]
    return {
        "near": {"deviations": [round(pairs[0][0], 3) for pairs in bins[1:]], "losses": rising},
        "model": {"deviations": [], "losses": [round(1 / geomean(models) - 1, 3)]},
    }


SHOWN = Console(width=110, soft_wrap=True)


@dataclass(frozen=True)
class Row:
    """The look-up of a problem that was left out.

    Attributes:
        problem: its text.
        how: as `lookup.Answer`.
        ratio: the time of the best configuration over that of the picked one, at most about 1; 0 if
            the picked one failed.
        expected: the expected loss, 0.05 for 5 %.
        deviation: the model's standard deviation for the picked configuration; None if unknown.
        picked, best: configurations.
        picked_us, best_us: their times.
        lookup_s: seconds of the look-up.
    """

    problem: str
    how: str
    ratio: float
    expected: float | None
    deviation: float | None
    picked: str
    best: str
    picked_us: float | None
    best_us: float
    lookup_s: float


def line(row: Row) -> str:
    """A row in one line, such as `300x4096x4096:bf16:nt  nearest 0.974, expected 0.952`."""
    expected = "" if row.expected is None else f", expected {1 / (1 + row.expected):.3f}"
    return f"{row.problem:28} {row.how:9} {row.ratio:.3f}{expected}; lookup {row.lookup_s:.2f} s"


def show(rows: Sequence[Row]) -> None:
    """Prints the worst ten rows, and a table by kind of answer."""
    for row in sorted(rows, key=lambda row: row.ratio)[:10]:
        SHOWN.print(line(row), markup=False, highlight=False)
    shown = Table("answers", "problems", "geomean", "worst", "below 0.9", "below 0.8", "expected")
    for how in [*dict.fromkeys(row.how for row in rows), "all"]:
        group = [row for row in rows if how in (row.how, "all")]
        ratios = [row.ratio for row in group]
        expected = geomean([1 / (1 + (row.expected or 0.0)) for row in group]) if group else 1.0
        if group:
            counts = (str(sum(ratio < limit for ratio in ratios)) for limit in (0.9, 0.8))
            numbers = f"{geomean(ratios):.3f}", f"{min(ratios):.3f}", *counts, f"{expected:.3f}"
            shown.add_row(how, str(len(group)), *numbers)
    SHOWN.print(shown)


def write(path: Path, device: Device, rows: Sequence[Row]) -> None:
    """Writes the rows with their summary."""
    ratios, origin = [row.ratio for row in rows], targets.here()
    content = {
        **provenance(device.name, origin.driver, origin.compiler),
        "source": origin.source,
        "rows": [asdict(row) for row in rows],
        "geomean": geomean(ratios),
        "worst": min(ratios),
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
