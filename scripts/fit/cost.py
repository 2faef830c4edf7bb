"""Fits the cost model's coefficients to recordings, and checks them on shapes left out.

    python scripts/fit/cost.py autotune/data/recordings/h100 --out autotune/data/cost.json

reads the recordings in the folders (`record.py`, `suite.py --trials`) and fits the logarithms of
the coefficients by least squares of the logarithms of predicted over measured time. Weak priors
keep coefficients that no recording determines. Large errors count less than their square, and slow
configurations less than fast ones, as ranking is about the fast ones.

Recordings of all precisions are fitted together: the tensor cores add one coefficient and the
traits of their kernels; all other coefficients belong to the device.

`--precision f8 --precision i8` fits the traits of kernels of those precisions alone and keeps all
else that the package comes with: a new precision does not move the predictions of the others.

Then each shape is left out of a fit in turn, in every precision and layout, and its configurations
are ranked by a model that has not seen it. The table shows the rank correlation, and how much
slower the best of the model's first guesses is than the best measured configuration.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from autotune.families import registry
from autotune.families.config import Config
from autotune.families.family import Between
from autotune.families.plan import Resources
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Recording
from autotune.model import cost
from autotune.model.cost import Coefficients, Load
from autotune.model.space import diverse
from autotune.problem import Problem

sys.path.append(str(Path(__file__).resolve().parents[1] / "measure"))

from results import contents

COST = Path("autotune/data/cost.json")


SAMPLE = 100.0
"""Measurements that a shape counts as, however many it has: they are not independent."""


COEFFICIENT, TRAIT, SHAPE = 0.7, 0.15, 0.05
"""Prior standard deviations of logarithms: of a coefficient, of a trait's factor, of the error
that all configurations of a shape share."""


NOISE = 0.05
"""Standard deviation of the logarithm of a prediction."""


STEP, GAIN = 1e-4, 1e-4
"""Step of the numerical slopes; relative gain below which the fit ends."""


LARGE = 2.0
"""Standard deviations beyond which an error counts by its size instead of its square."""


RANKED = 3
"""Least number of configurations that a rank correlation makes sense for."""


NAMES = tuple(field.name for field in fields(Coefficients) if field.name != "traits")


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """The configurations that ran on a shape, their load in the model, and the logarithms of their
    microseconds."""

    recording: Recording
    configs: tuple[Config, ...]
    load: Load
    logs: Floats
    weights: Floats

    @classmethod
    def of(cls, recording: Recording) -> Sample:
        """The configurations of a recording that ran, with their real resources."""
        configs, resources, measured = zip(*measured_rows(recording), strict=True)
        load = Load.of(configs, recording.problem, recording.device, resources)
        times = np.array(measured)
        # Every shape counts the same; a configuration that takes twice as long counts half.
        weights = times.min() / times
        return cls(recording, configs, load, np.log(times), weights * SAMPLE / weights.sum())

    def traits(self, precisions: Set[str] = frozenset()) -> set[str]:
        """The traits of its configurations: all, or those of these precisions."""
        traits = {trait for traits in self.load.work.traits for trait in traits}
        names = {name for trait in traits for name in shares_of(trait, {})}
        return {name for name in names if not precisions or is_of(name, precisions)}

    def errors(self, coefficients: Coefficients) -> Floats:
        """Logarithms of predicted over measured time."""
        return np.asarray(np.log(self.load.terms(coefficients).total) - self.logs)


def shares_of(trait: str | Between, factors: Mapping[str, float]) -> dict[str, float]:
    """The share that each named trait has of a trait's factor."""
    if isinstance(trait, str):
        return {trait: 1.0}
    terms = trait.terms(factors)
    return {name: term / sum(terms.values()) for name, term in terms.items()}


def measured_rows(recording: Recording) -> list[tuple[Config, Resources, float]]:
    """Configurations that ran, their resources, and their microseconds."""
    return [
        (completed(row.config, recording), row.resources, row.outcome.time_us)
        for row in recording.rows
        if isinstance(row.outcome, Measurement)
    ]


def completed(config: Config, recording: Recording) -> Config:
    """The configuration with the parameters that its family has gained since the recording, each
    at its first value, which turns it off."""
    family = registry.find(config.family)
    domain = family.domain(recording.problem, recording.device)
    first = {name: values[0] for name, values in domain.items()}
    return Config.of(config.family, first | config.values)


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders or archives of recordings.")],
    out: Annotated[Path | None, typer.Option(help="JSON file for the coefficients.")] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="Fit the traits of this precision alone; repeatable.")
    ] = None,
) -> None:
    """Fit the model to the recordings in FOLDERS and check it on shapes left out."""
    files = [file for folder in folders for file in contents(folder).values()]
    samples = [Sample.of(Recording.loads(file)) for file in files]
    precisions = frozenset(precision or ())
    if precisions:
        rows = [row for row in zip(files, samples, strict=True) if row[1].traits(precisions)]
        if not rows:
            names = ", ".join(sorted(precisions))
            raise typer.BadParameter(f"none of {len(files)} recordings has traits of {names}")
        files, samples = map(list, zip(*rows, strict=True))
    coefficients = fit(samples, cost.fitted() if precisions else None, precisions)
    left_out_scores = list(left_out(samples, coefficients, precisions))
    Console().print(table(left_out_scores))
    if out:
        origin = provenance(files, samples, left_out_scores)
        origins = added(origin, precisions) if precisions else {"provenance": origin}
        data = {**origins, "coefficients": rounded(coefficients)}
        out.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def fit(
    samples: Sequence[Sample],
    start: Coefficients | None = None,
    precisions: Set[str] = frozenset(),
) -> Coefficients:
    """The coefficients that fit the samples best; a `start` near them saves time. With precisions,
    `start` with the best factors of their traits."""
    traits = {trait for sample in samples for trait in sample.traits(precisions)}
    space = _Space(tuple(sorted(traits)), start if precisions else None)
    first = space.values(start or Coefficients())
    # Errors and slopes are computed together; least_squares asks for both at the same point.
    linear = lru_cache(1)(lambda point: space.linear(samples, np.frombuffer(point)))
    solution = least_squares(
        lambda values: linear(values.tobytes())[0],
        first,
        jac=lambda values: linear(values.tobytes())[1],
        ftol=GAIN,
    )
    return space.coefficients(solution.x)


@dataclass(frozen=True)
class _Space:
    """The points of the fit: the logarithms of the coefficients, then those of the traits.

    Attributes:
        traits: the traits that are fitted.
        kept: the coefficients and other traits that stay as they are; None fits the coefficients.
    """

    traits: tuple[str, ...]
    kept: Coefficients | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients that are fitted."""
        return NAMES if self.kept is None else ()

    def values(self, coefficients: Coefficients) -> Floats:
        """The point of the coefficients."""
        device = [getattr(coefficients, name) for name in self.names]
        factors = [coefficients.traits.get(trait, 1.0) for trait in self.traits]
        return np.log([*device, *factors])

    def coefficients(self, values: Floats) -> Coefficients:
        """The coefficients of the point."""
        device, factors = np.split(np.exp(values), [len(self.names)])
        kept = self.kept or Coefficients()
        traits = {**kept.traits, **dict(zip(self.traits, factors.tolist(), strict=True))}
        return replace(kept, **dict(zip(self.names, device.tolist(), strict=True)), traits=traits)

    def linear(self, samples: Sequence[Sample], values: Floats) -> tuple[Floats, Floats]:
        """Errors in standard deviations, and their slopes: of the samples, then of the values from
        their priors."""
        parts = [self._of(sample, values) for sample in samples]
        widths = np.repeat([COEFFICIENT, TRAIT], [len(self.names), len(self.traits)])
        prior_errors = (values - self.values(Coefficients())) / widths
        errors, slopes = zip(*parts, (prior_errors, np.diag(1 / widths)), strict=True)
        return np.concatenate(errors), np.concatenate(slopes)

    def _of(self, sample: Sample, values: Floats) -> tuple[Floats, Floats]:
        """Errors and slopes of a sample: of its measurements, then of the error they share."""
        coefficients, step = self.coefficients(values), np.exp(STEP)
        errors = sample.errors(coefficients)
        moved = values + STEP * np.eye(len(self.names), len(values))
        points = [self.coefficients(point) for point in moved]
        # A trait scales the slot and the tensor cores' cycles of the configurations that have it.
        scaled = {"slot": coefficients.slot * step, "tensor": coefficients.tensor * step}
        points.append(replace(coefficients, **scaled))
        *device, slot = ((sample.errors(point) - errors) / STEP for point in points)
        places = {trait: len(device) + place for place, trait in enumerate(self.traits)}
        slopes = np.column_stack([*device, np.zeros((len(errors), len(places)))])
        for row, traits in enumerate(sample.load.work.traits):
            for trait in traits:
                for name, share in shares_of(trait, coefficients.traits).items():
                    if name in places:
                        slopes[row, places[name]] += share * slot[row]
        weights = sample.weights
        shares = weights / (weights.sum() + (NOISE / SHAPE) ** 2)
        common, tilt = shares @ errors, shares @ slopes
        errors, steepness = soft((errors - common) / NOISE)
        root = np.sqrt(weights)
        return (
            np.append(root * errors, common / SHAPE),
            np.vstack([(root * steepness / NOISE)[:, None] * (slopes - tilt), tilt / SHAPE]),
        )


def left_out(
    samples: Sequence[Sample], start: Coefficients, precisions: Set[str] = frozenset()
) -> Iterator[Score]:
    """The score of each sample by a fit to the samples of all other shapes."""
    unseen = _without(start, precisions)
    for shape in dict.fromkeys(map(_shape, samples)):
        rest = [sample for sample in samples if _shape(sample) != shape]
        coefficients = fit(rest, unseen, precisions)
        group = (sample for sample in samples if _shape(sample) == shape)
        yield from (score(sample, coefficients) for sample in group if _can_rank(sample))


def _without(coefficients: Coefficients, precisions: Set[str]) -> Coefficients:
    """The coefficients without the traits of these precisions."""
    factors = coefficients.traits.items()
    others = {trait: factor for trait, factor in factors if not is_of(trait, precisions)}
    return replace(coefficients, traits=others)


def is_of(trait: str, precisions: Set[str]) -> bool:
    """Whether a trait is one of kernels of these precisions, such as `mma f8 16x8`."""
    return not precisions.isdisjoint(trait.split())


def _shape(sample: Sample) -> tuple[str, int]:
    return sample.recording.problem.shape, sample.recording.problem.batch


def _can_rank(sample: Sample) -> bool:
    return len(sample.configs) >= RANKED


def score(sample: Sample, coefficients: Coefficients) -> Score:
    """How well the model ranks a shape by estimated resources, as before compilation."""
    problem, device = sample.recording.problem, sample.recording.device
    predicted = cost.times(sample.configs, problem, device, coefficients=coefficients)
    measured = np.exp(sample.logs)
    order = sorted(range(len(measured)), key=lambda row: (predicted[row], sample.configs[row]))
    times = dict(zip(sample.configs, measured, strict=True))
    first = diverse([sample.configs[row] for row in order], problem, FIRST)
    return Score(
        problem=problem,
        configs=len(measured),
        spearman=float(spearmanr(predicted, measured).statistic),
        first=float(min(times[config] for config in first) / measured.min() - 1),
        error=float(np.median(predicted / measured) - 1),
    )


def soft(sizes: Floats) -> tuple[Floats, Floats]:
    """The root of the pseudo-Huber loss and its slope: small errors count by their square, those
    beyond `LARGE` by their size."""
    ratio = np.square(sizes / LARGE)
    hypotenuse = np.sqrt(1 + ratio)
    root = np.sqrt((1 + hypotenuse) / 2)
    return np.asarray(sizes / root), np.asarray(1 / root - ratio / (4 * root**3 * hypotenuse))


def provenance(
    files: Sequence[bytes], samples: Sequence[Sample], left_out_scores: Sequence[Score]
) -> dict[str, Any]:
    """The recordings that the coefficients were fitted to, and the scores of shapes left out."""
    recordings = [sample.recording for sample in samples]
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "devices": sorted({recording.device.name for recording in recordings}),
        "recordings": [
            {
                "problem": str(recording.problem),
                "source": recording.origin.source,
                "date": recording.date,
                "ran": len(sample.configs),
                "sha256": hashlib.sha256(file).hexdigest(),
            }
            for file, recording, sample in zip(files, recordings, samples, strict=True)
        ],
        "left out": [
            {
                "problem": str(result.problem),
                "spearman": round(result.spearman, 3),
                "first": round(result.first, 4),
            }
            for result in left_out_scores
        ],
        "summary": summary(left_out_scores),
        "summaries": summaries(left_out_scores),
    }


def added(origin: Mapping[str, Any], precisions: Set[str]) -> dict[str, Any]:
    """The origins of the package's coefficients, with that of these precisions among `added`."""
    kept: dict[str, Any] = json.loads(COST.read_text(encoding="utf-8"))
    names = sorted(precisions)
    others = [entry for entry in kept.get("added", []) if entry["precisions"] != names]
    return {
        "provenance": kept["provenance"],
        "added": [*others, {"precisions": names, **origin}],
    }


def rounded(coefficients: Coefficients) -> dict[str, Any]:
    """The coefficients with four digits; traits with a factor of 1 are left out."""
    values = {name: float(f"{getattr(coefficients, name):.4g}") for name in NAMES}
    traits = {name: float(f"{value:.4g}") for name, value in sorted(coefficients.traits.items())}
    return {**values, "traits": {name: value for name, value in traits.items() if value != 1}}


FIRST = 10
"""Number of first choices of the model that `first` takes the best of."""


@dataclass(frozen=True)
class Score:
    """How well the model ranks a shape it was not fitted to.

    Attributes:
        problem: the shape.
        configs: number of configurations that ran.
        spearman: rank correlation of predicted and measured times.
        first: the best of the first choices over the best known time, less 1.
        error: median of the predicted over the measured times, less 1.
    """

    problem: Problem
    configs: int
    spearman: float
    first: float
    error: float


def table(scores: Sequence[Score]) -> Table:
    shown = Table("shape", "ran", "Spearman", f"best of {FIRST}", "median error")
    for score in scores:
        shown.add_row(
            str(score.problem),
            str(score.configs),
            f"{score.spearman:.2f}",
            f"{score.first:+.1%}",
            f"{score.error:+.1%}",
        )
    for part, values in summaries(scores).items():
        for name, value in values.items():
            numbers = f"{value['spearman']:.2f}", f"{value['first']:+.1%}"
            shown.add_row(f"{part}: {name}", "", *numbers, "")
    return shown


def summaries(scores: Sequence[Score]) -> dict[str, dict[str, dict[str, float]]]:
    """A summary for each precision."""
    computes = dict.fromkeys(score.problem.compute for score in scores)
    return {
        compute: summary([score for score in scores if score.problem.compute == compute])
        for compute in computes
    }


def summary(scores: Sequence[Score]) -> dict[str, dict[str, float]]:
    """Median and 90th percentile over the shapes (for correlations the 10th)."""
    correlations = np.array([score.spearman for score in scores])
    first = np.array([score.first for score in scores])
    return {
        "median": {"spearman": float(np.median(correlations)), "first": float(np.median(first))},
        "90 % of shapes": {
            "spearman": float(np.percentile(correlations, 10)),
            "first": float(np.percentile(first, 90)),
        },
    }


if __name__ == "__main__":
    typer.run(main)
