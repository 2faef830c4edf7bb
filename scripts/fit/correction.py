"""Trains the networks that correct the cost model, and checks them on shapes left out.

    python scripts/fit/correction.py docs/results/h100/trials.zip docs/results/h200/trials.zip \\
        docs/results/h200/drawn.zip --out autotune/data/correction.npz

learns the logarithm of measured over modelled time from the recordings in the folders, which have
to be of one compute capability. Run it after `fit_cost.py`, whose coefficients it builds on, and
`digests.py` after it.

First neighbourhoods of shapes are left out in turn, in all precisions and layouts: the table has
the speed of the model's first choice among the recorded configurations, over that of the fastest,
and the rank correlation, without and with a correction that has not seen the neighbourhood.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from joblib import Parallel, delayed
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.neural_network import MLPRegressor

from autotune.families.config import Config
from autotune.measure.recording import Recording
from autotune.model import cost
from autotune.model.cost import Load, Network
from autotune.model.features import Parameters

sys.path.append(str(Path(__file__).resolve().parents[1] / "measure"))

from cost import measured_rows
from results import contents, geomean, of_recordings

LAYERS = (64, 32)


MEMBERS = 3


LEAST_WEIGHT = 0.1
"""A configuration weighs this and the square of its speed over that of its shape's fastest."""


FEWEST = 200
"""Configurations of a family that are enough to learn from."""


CONSTANT = 1e-6
"""Standard deviation below which a column is left out."""


NEIGHBOURHOODS, FOLDS = 24, 6


RANKED = 8
"""Least number of configurations of a shape in the table."""


Floats = NDArray[np.float64]


Networks = Mapping[str, Network]


@dataclass(frozen=True)
class Sample:
    """The configurations of one family that ran on a shape.

    Attributes:
        place: the recording's place among all.
        configs: the configurations.
        shared: the columns that all families have.
        modelled: microseconds by the cost model alone.
        measured: their microseconds.
    """

    place: int
    family: str
    configs: tuple[Config, ...]
    shared: Floats
    modelled: Floats
    measured: Floats

    @property
    def errors(self) -> Floats:
        """Logarithms of measured over modelled time."""
        return np.log(self.measured / self.modelled)


def main(
    folders: Annotated[list[Path], typer.Argument(help="Folders or archives of recordings.")],
    out: Annotated[Path | None, typer.Option(help="npz file for the networks.")] = None,
) -> None:
    """Train the correction on the recordings in FOLDERS and check it on shapes left out."""
    files = [file for folder in folders for file in contents(folder).values()]
    recordings = [*map(Recording.loads, files)]
    capabilities = {recording.device.compute_capability for recording in recordings}
    if len(capabilities) != 1:
        raise typer.BadParameter(f"the recordings are of {len(capabilities)} compute capabilities")
    samples = [
        sample for place, item in enumerate(recordings) for sample in samples_of(place, item)
    ]
    table = scores(recordings, samples)
    Console().print(table)
    if out:
        about = {
            **of_recordings(recordings),
            "compute_capability": [*capabilities.pop()],
            "recordings": len(recordings),
            "configurations": sum(len(sample.configs) for sample in samples),
            "sha256": hashlib.sha256(b"".join(files)).hexdigest(),
        }
        with out.open("wb") as file:
            np.savez_compressed(file, **arrays(trained(samples), about))


def samples_of(place: int, recording: Recording) -> list[Sample]:
    """The configurations of a recording by family, with their real resources."""
    rows, samples = measured_rows(recording), []
    for family in dict.fromkeys(config.family for config, *_ in rows):
        members = (row for row in rows if row[0].family == family)
        configs, resources, measured = zip(*members, strict=True)
        load = Load.of(configs, recording.problem, recording.device, resources)
        terms = load.terms(cost.fitted())
        shared = load.correction_columns(terms)
        sample = Sample(place, family, configs, shared, terms.total, np.array(measured))
        samples.append(sample)
    return samples


def trained(samples: Sequence[Sample]) -> Networks:
    """Networks of each family with enough configurations."""
    networks: dict[str, Network] = {}
    fastest: dict[int, float] = {}
    for sample in samples:
        best = fastest.get(sample.place, np.inf)
        fastest[sample.place] = min(best, float(sample.measured.min()))
    for family in sorted({sample.family for sample in samples}):
        group = [sample for sample in samples if sample.family == family]
        if sum(len(sample.configs) for sample in group) < FEWEST:
            continue
        untrained, columns = columns_of(group)
        errors = np.concatenate([sample.errors for sample in group])
        speeds = np.concatenate([fastest[sample.place] / sample.measured for sample in group])
        importance = LEAST_WEIGHT + np.square(speeds)
        members = Parallel(n_jobs=-1)(
            delayed(member)(columns, errors, importance / importance.mean(), seed)
            for seed in range(MEMBERS)
        )
        weights, biases = (
            tuple(np.stack(layer) for layer in zip(*parts, strict=True))
            for parts in zip(*members, strict=True)
        )
        networks[family] = replace(untrained, weights=weights, biases=biases)
    return networks


def columns_of(group: Sequence[Sample]) -> tuple[Network, Floats]:
    """The columns' names and scales, as a network without layers, and the scaled columns of a
    family's samples."""
    pairs = {pair for sample in group for config in sample.configs for pair in config.params}
    numbers = tuple(sorted({name for name, value in pairs if isinstance(value, int)}))
    worded = ((name, value) for name, value in pairs if isinstance(value, str))
    words = tuple(sorted(pair for pair in worded if pair[0] != "compute"))
    unscaled = Network(numbers, words, np.zeros(1), np.ones(1), (), ())
    rows = [unscaled.columns(sample.shared, Parameters.of(sample.configs)) for sample in group]
    columns = np.vstack(rows)
    mean, scale = columns.mean(0), columns.std(0)
    scale[scale < CONSTANT] = np.inf
    network = replace(unscaled, mean=mean, scale=scale)
    return network, network.scaled(columns)


def member(
    columns: Floats, errors: Floats, importance: Floats, seed: int
) -> tuple[list[Floats], list[Floats]]:
    """Weights and biases of one network."""
    regressor = MLPRegressor(
        hidden_layer_sizes=LAYERS,
        alpha=0.1,
        batch_size=256,
        learning_rate_init=2e-3,
        max_iter=500,
        n_iter_no_change=25,
        early_stopping=True,
        random_state=seed,
    )
    regressor.fit(columns, errors, importance)
    return regressor.coefs_, regressor.intercepts_


def arrays(networks: Networks, about: dict[str, Any]) -> dict[str, Any]:
    """The arrays of the file, as `correction.loads` reads them."""
    families = {
        family: {"numbers": made.numbers, "words": made.words} for family, made in networks.items()
    }
    named: dict[str, Any] = {"about": json.dumps({**about, "families": families})}
    for family, made in networks.items():
        named |= {f"{family}/mean": made.mean, f"{family}/scale": made.scale}
        for kind, layers in (("weights", made.weights), ("biases", made.biases)):
            named |= {f"{family}/{kind}{place}": layer for place, layer in enumerate(layers)}
    return {
        name: value if isinstance(value, str) else value.astype(np.float32)
        for name, value in named.items()
    }


def scores(recordings: Sequence[Recording], samples: Sequence[Sample]) -> Table:
    """The table of choices and correlations, each neighbourhood by networks that have not seen
    it."""
    folds = folds_of(recordings)
    corrected: dict[int, Floats] = {}
    for fold in range(FOLDS):
        networks = trained([sample for sample in samples if folds[sample.place] != fold])
        for row, sample in enumerate(samples):
            if folds[sample.place] == fold:
                corrected[row] = sample.modelled * np.exp(logs(networks, sample))
    shown = Table("device", "shapes", "model", "choice", "worst", "correlation")
    for device in sorted({recording.device.name for recording in recordings}):
        places = {p for p, item in enumerate(recordings) if item.device.name == device}
        for model, predicted in (
            ("arithmetic", lambda row: samples[row].modelled),
            ("corrected", lambda row: corrected[row]),
        ):
            shown.add_row(device, *figures(samples, places, model, predicted))
    return shown


def folds_of(recordings: Sequence[Recording]) -> NDArray[np.int64]:
    """The fold of each recording: neighbouring shapes fall together."""
    sizes = [(item.problem.m, item.problem.n, item.problem.k) for item in recordings]
    points = np.log2(sizes)
    distinct = np.unique(points, axis=0)
    count = min(NEIGHBOURHOODS, len(distinct))
    clusters = KMeans(count, n_init=4, random_state=0).fit(distinct)
    return np.asarray(clusters.predict(points) % FOLDS)


def logs(networks: Networks, sample: Sample) -> Floats:
    """The correction of a sample's configurations."""
    made = networks.get(sample.family)
    if made is None:
        return np.zeros(len(sample.configs))
    columns = made.columns(sample.shared, Parameters.of(sample.configs))
    return cost.bounded(made.logs(columns))


def figures(
    samples: Sequence[Sample],
    places: Set[int],
    model: str,
    predicted: Callable[[int], Floats],
) -> list[str]:
    """Shapes, model, geometric mean and worst of the choices, and the median correlation."""
    choices, correlations = [], []
    for place in places:
        rows = [row for row, sample in enumerate(samples) if sample.place == place]
        if sum(len(samples[row].measured) for row in rows) < RANKED:
            continue
        times = np.concatenate([samples[row].measured for row in rows])
        expected = np.concatenate([predicted(row) for row in rows])
        choices.append(float(times.min() / times[expected.argmin()]))
        correlations.append(float(spearmanr(expected, times).statistic))
    if not choices:
        return ["0", model, "", "", ""]
    middle = f"{np.median(correlations):.2f}"
    return [str(len(choices)), model, f"{geomean(choices):.3f}", f"{min(choices):.3f}", middle]


if __name__ == "__main__":
    typer.run(main)
