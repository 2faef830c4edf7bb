"""Fits the coefficients of the cost model to recordings, and says what they are worth elsewhere.

    python scripts/fit_cost.py autotune/data/recordings/h100 --out autotune/data/cost.json

reads the recordings in the given folders (`record.py`, `suite.py --trials`) and fits the logarithms
of the coefficients, by least squares of the logarithms of predicted over measured time. Weak priors
keep what the recordings say nothing about where it was; large errors count less than their square,
and slow configurations less than fast ones, which are the ones to be told apart.

Recordings of all precisions are fitted together: what the tensor cores add is one coefficient and
the traits of their kernels, the rest is the device's.

Then each shape is left out of a fit in turn, in every precision and layout, and its configurations
are ranked by a model that has not seen it. The table shows the rank correlation and how much slower
than the best known configuration the best of the model's first guesses is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scores
import typer
from numpy.typing import NDArray
from rich.console import Console
from scipy.optimize import least_squares
from scipy.stats import spearmanr
from scores import FIRST, Score

from autotune.candidates import cost
from autotune.candidates.cost import Coefficients, Load
from autotune.candidates.diversity import diverse
from autotune.families import registry
from autotune.families.config import Config
from autotune.runners.base import Measurement
from autotune.runners.recording import Recording

SAMPLE = 100.0
"""Measurements that a shape counts for, however many there are: they are not independent."""
# Standard deviations of the logarithms before any measurement: of a coefficient, of the factor of
# a trait, of what a shape has in common that the model knows nothing about.
COEFFICIENT, TRAIT, SHAPE = 0.7, 0.15, 0.05
# Of a prediction.
NOISE = 0.05
STEP, GAIN = 1e-4, 1e-4
# Standard deviations from which on an error counts with its size, not with its square.
LARGE = 2.0
RANKED = 3
"""Configurations without which there is no rank to speak of."""
NAMES = tuple(one.name for one in fields(Coefficients) if one.name != "traits")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """What ran on a shape, as the model sees it, and the logarithms of the microseconds."""

    recording: Recording
    configs: tuple[Config, ...]
    load: Load
    logs: Floats
    weights: Floats

    @classmethod
    def of(cls, recording: Recording) -> Sample:
        """The configurations of a recording that ran, with their real resources."""
        ran = [
            (completed(row.config, recording), row.resources, row.outcome.time_us)
            for row in recording.rows
            if isinstance(row.outcome, Measurement)
        ]
        configs, resources, measured = zip(*ran, strict=True)
        load = Load.of(configs, recording.problem, recording.device, resources)
        times = np.array(measured)
        # Every shape counts the same, and a configuration that takes twice as long for half.
        weights = times.min() / times
        return cls(recording, configs, load, np.log(times), weights * SAMPLE / weights.sum())

    def errors(self, given: Coefficients) -> Floats:
        """Logarithms of predicted over measured time."""
        predicted = self.load.times(self.recording.problem, self.recording.device, given)
        return np.asarray(np.log(predicted) - self.logs)


def completed(config: Config, recording: Recording) -> Config:
    """The configuration with the parameters that its family had not when it was recorded: each at
    the first of its values, which leaves out what it is for."""
    family = registry.find(config.family)
    domain = family.domain(recording.problem, recording.device)
    first = {name: values[0] for name, values in domain.items()}
    return Config.of(config.family, first | config.values)


def main(
    folders: Annotated[list[Path], typer.Argument(help="Where the recordings are.")],
    out: Annotated[Path | None, typer.Option(help="Writes the coefficients there.")] = None,
) -> None:
    """Fits the model to the recordings in FOLDERS and checks it on shapes left out."""
    paths = sorted(path for folder in folders for path in folder.glob("*.json.gz"))
    samples = [Sample.of(Recording.load(path)) for path in paths]
    found = fit(samples)
    judged = list(left_out(samples, found))
    Console().print(scores.table(judged))
    if out:
        made = provenance(paths, samples, judged)
        data = {"provenance": made, "coefficients": rounded(found)}
        out.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def fit(samples: Sequence[Sample], start: Coefficients | None = None) -> Coefficients:
    """The coefficients that explain the samples best; `start` only saves time."""
    traits = {one for sample in samples for some in sample.load.work.traits for one in some}
    space = _Space(tuple(sorted(traits)))
    first = space.values(start or Coefficients())
    # The slopes come with the errors, and both are asked for at the same place.
    linear = lru_cache(1)(lambda place: space.linear(samples, np.frombuffer(place)))
    found = least_squares(
        lambda values: linear(values.tobytes())[0],
        first,
        jac=lambda values: linear(values.tobytes())[1],
        ftol=GAIN,
    )
    return space.coefficients(found.x)


@dataclass(frozen=True)
class _Space:
    """Where the fit looks: the logarithms of the coefficients, then those of the traits."""

    traits: tuple[str, ...]

    def values(self, given: Coefficients) -> Floats:
        """The place of the coefficients."""
        own = [getattr(given, name) for name in NAMES]
        return np.log([*own, *(given.traits.get(trait, 1.0) for trait in self.traits)])

    def coefficients(self, values: Floats) -> Coefficients:
        """The coefficients of the place."""
        own, factors = np.split(np.exp(values), [len(NAMES)])
        traits = dict(zip(self.traits, factors.tolist(), strict=True))
        return Coefficients(**dict(zip(NAMES, own.tolist(), strict=True)), traits=traits)

    def linear(self, samples: Sequence[Sample], values: Floats) -> tuple[Floats, Floats]:
        """Errors in standard deviations, and their slopes: of the samples, then of the values from
        what was expected of them."""
        parts = [self._of(sample, values) for sample in samples]
        widths = np.repeat([COEFFICIENT, TRAIT], [len(NAMES), len(self.traits)])
        away = (values - self.values(Coefficients())) / widths
        errors, slopes = zip(*parts, (away, np.diag(1 / widths)), strict=True)
        return np.concatenate(errors), np.concatenate(slopes)

    def _of(self, sample: Sample, values: Floats) -> tuple[Floats, Floats]:
        """The same of one sample: of its measurements, then of what they have in common."""
        errors = sample.errors(self.coefficients(values))
        moved = values + STEP * np.eye(len(NAMES), len(values))
        own = [(sample.errors(self.coefficients(one)) - errors) / STEP for one in moved]
        # A trait is a factor of the slot and of the tensor cores' cycles of those that have it.
        slot = own[NAMES.index("slot")] + own[NAMES.index("tensor")]
        places = {trait: place for place, trait in enumerate(self.traits)}
        slopes = np.column_stack([*own, np.zeros((len(errors), len(places)))])
        for row, traits in enumerate(sample.load.work.traits):
            for trait in traits:
                slopes[row, len(NAMES) + places[trait]] += slot[row]
        weights = sample.weights
        shares = weights / (weights.sum() + (NOISE / SHAPE) ** 2)
        common, tilt = shares @ errors, shares @ slopes
        errors, steepness = soft((errors - common) / NOISE)
        root = np.sqrt(weights)
        return (
            np.append(root * errors, common / SHAPE),
            np.vstack([(root * steepness / NOISE)[:, None] * (slopes - tilt), tilt / SHAPE]),
        )


def left_out(samples: Sequence[Sample], start: Coefficients) -> Iterator[Score]:
    """How each sample is ranked by a fit to those of all other shapes."""
    shapes = [(one.recording.problem.shape, one.recording.problem.batch) for one in samples]
    for left in dict.fromkeys(shapes):
        of_it = [shape == left for shape in shapes]
        others = [sample for sample, own in zip(samples, of_it, strict=True) if not own]
        found = fit(others, start)
        own = (one for one, is_own in zip(samples, of_it, strict=True) if is_own)
        yield from (score(one, found) for one in own if len(one.configs) >= RANKED)


def score(sample: Sample, given: Coefficients) -> Score:
    """How well the model, which knows no resources before compilation, ranks a shape."""
    problem, device = sample.recording.problem, sample.recording.device
    predicted = cost.times(sample.configs, problem, device, coefficients=given)
    measured = np.exp(sample.logs)
    order = sorted(range(len(measured)), key=lambda row: (predicted[row], sample.configs[row]))
    known = dict(zip(sample.configs, measured, strict=True))
    first = diverse([sample.configs[row] for row in order], problem, FIRST)
    return Score(
        problem=problem,
        configs=len(measured),
        spearman=float(spearmanr(predicted, measured).statistic),
        first=float(min(known[config] for config in first) / measured.min() - 1),
        error=float(np.median(predicted / measured) - 1),
    )


def soft(sizes: Floats) -> tuple[Floats, Floats]:
    """The root of the pseudo-Huber loss and its slope: small errors count with their square, those
    over `LARGE` more and more with their size."""
    ratio = np.square(sizes / LARGE)
    long = np.sqrt(1 + ratio)
    root = np.sqrt((1 + long) / 2)
    return np.asarray(sizes / root), np.asarray(1 / root - ratio / (4 * root**3 * long))


def provenance(
    paths: Sequence[Path], samples: Sequence[Sample], judged: Sequence[Score]
) -> dict[str, Any]:
    """What the coefficients were fitted to, and how well they did on shapes left out."""
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
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path, recording, sample in zip(paths, recordings, samples, strict=True)
        ],
        "left out": [
            {
                "problem": str(one.problem),
                "spearman": round(one.spearman, 3),
                "first": round(one.first, 4),
            }
            for one in judged
        ],
        "summary": scores.summary(judged),
        "summaries": scores.summaries(judged),
    }


def rounded(given: Coefficients) -> dict[str, Any]:
    """The coefficients with four digits; factors that change nothing are left out."""
    values = {name: float(f"{getattr(given, name):.4g}") for name in NAMES}
    traits = {name: float(f"{value:.4g}") for name, value in sorted(given.traits.items())}
    return {**values, "traits": {name: value for name, value in traits.items() if value != 1}}


if __name__ == "__main__":
    typer.run(main)
