"""The choice for a problem without a record, as one pass.

    near        the nearest records, which correct the cost model
    candidates  their entries, the portfolio adapted to the problem, and variants of the best
    predicted   each candidate's time and its standard deviation
    ranked      by the time that a candidate rarely exceeds; the first is the choice

The portfolio has configurations of which one or another serves any shape well:
`data/portfolio.json` lists them for each architecture and precision, in the order in which they
cover drawn and recorded problems best (`scripts/fit/portfolio.py`). So a look-up predicts these few
and the entries of the nearest records, rather than thousands.

Where the vendor's library was not timed on the problem, its expected time
(`model_error.expected_ratio`) follows from its times on other problems, and it multiplies where it
is expected to be faster. A configuration's time is taken to be one standard deviation longer than
expected: on 286 untuned products of an H100 and an H200, `docs/results/*/versions.json` included,
14 are then slower than the library's by more than 2 %, at 0.75 of its speed at worst, instead of 67
and 0.33 where our kernels multiply all of them; the mean over the library is 1.20 instead of 1.23.

On an architecture where the library was never timed, its expected time is that of the other
architectures, at the same distance from the roofline. Nothing tells how far off that is, nor how
far off the kernel's time: the process's prior deviation counts for both. A kernel then multiplies
only where it is expected to take at most 0.45 of the library's time, as for products that cuBLAS is
known to be bad at.

A race (`promising`) takes the same candidates and predictions, and ranks them in its own way. Where
no record is near, the cost model stands alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib import resources
from itertools import chain, islice, repeat, takewhile, zip_longest
from typing import NamedTuple

import msgspec
import numpy as np
from threadpoolctl import ThreadpoolController

from autotune.cuda.cache import installed_count, is_installed
from autotune.device import Device, same_model
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.lookup.answer import (
    Answer,
    How,
    expected_loss,
    recorded_prediction,
    tune_command,
    untuned_card,
    vendor_wins,
)
from autotune.lookup.digest import RecordDigest, parsed, samples
from autotune.lookup.neighbours import (
    REACH,
    TEACHERS,
    Near,
    accuracy_filter,
    elsewhere,
    of_architecture,
    own,
)
from autotune.measure.objective import HOT, Objective
from autotune.model import cost
from autotune.model.legality import Legality, as_tuned, for_compute
from autotune.model.model_error import (
    ARITHMETIC,
    VENDOR_VARIANCES,
    ModelError,
    Predictions,
    SampleGroup,
    expected_ratio,
)
from autotune.model.space import AccuracyFilter, Adaptation, sample, variants
from autotune.problem import Problem
from autotune.records import Record, Records

NEIGHBOURS = 24
"""Records whose entries are candidates, the nearest."""

ENTRIES = 32
"""The most entries of near records that become candidates: the best of each, then the second
best."""

VARIED = 4
"""The number of best candidates that a look-up varies.

On 168 drawn shapes for an H200 the best of the adapted members of the portfolio takes 1.7 % longer
than the best of a sample and its variants, by the cost model; with the variants of four of them
0.9 %, a millisecond later. Members as they are take 6 % longer.
"""

READY = 1.05
"""Predicted slowdown that is accepted for a program that came with the package. On 66 recorded
shapes, each left out in turn, with 15 or 40 % of the configurations compiled, it costs 1.1 % at
most in the mean."""

CAUTION = 2.0
"""Standard deviations by which a configuration is taken to be slower than predicted: configurations
with few records nearby are more often slower than predicted than faster."""

Rank = Callable[[Sequence[Config], Predictions], Iterable[Config]]
"""Ranks the configurations that can run by their predicted times, the best first."""


class Choice(NamedTuple):
    """A configuration that could be answered.

    Attributes:
        config: the configuration.
        cautious_us: microseconds that it rarely exceeds; choices are ranked by them.
        time_us: expected microseconds.
        deviation: standard deviation of the log of `time_us`.
    """

    config: Config
    cautious_us: float
    time_us: float
    deviation: float


def nearest(
    problem: Problem, device: Device, record: Record | None, records: Records, objective: Objective
) -> Answer | None:
    """The most promising configuration, by the records near the problem and the cost model; None
    if no configuration can run.

    Records of related devices count as those of problems that are an octave farther; a recorded
    prediction of the problem itself is answered where all are far. Cold times decide only if the
    nearest record has some, and energies never. Of configurations that are nearly as fast, one
    whose programs came with the package is chosen.

    Args:
        problem: the problem.
        device: the device that runs it.
        record: the problem's own record, which is predicted or has no entry that is legal today;
            None if there is none.
        records: all records.
        objective: objective that ranks.
    """
    near = Neighbourhood.of(problem, device, records, objective)
    answer = None if near.learnt else recorded_prediction(problem, device, record)
    deviation = math.sqrt(ARITHMETIC.signal)
    if answer is None:
        ranked = choices(near)
        if not ranked:
            return None
        choice = next(_ready(ranked, problem, device), ranked[0])
        answer, deviation = _answer(choice, near, records), choice.deviation
    if record is None or not record.provenance.baseline_fault:
        answer = beside_vendor(answer, near.records, records, deviation)
    else:
        answer = replace(answer, vendor=False)  # the library's result was wrong
    return _advised(answer, near, records)


def choices(near: Neighbourhood) -> list[Choice]:
    """The accurate configurations that can run, the most promising first."""
    accuracy = accuracy_filter(near.problem, near.device, near.records)
    with one_blas_thread():
        configs, predictions = shortlist(near, accuracy, _by_promise, (VARIED,))
    columns = predictions.cautious(CAUTION), predictions.times, predictions.deviations
    rows = dict(zip(configs, np.column_stack(columns).tolist(), strict=True))
    return [Choice(config, *rows[config]) for config in _by_promise(configs, predictions)]


def shortlist(
    near: Neighbourhood, accuracy: AccuracyFilter, rank: Rank, varied: Sequence[int]
) -> tuple[list[Config], Predictions]:
    """The accurate configurations for a problem, and their predicted times: entries of near
    records, the portfolio adapted to the problem, and in turns variants of the best.

    Args:
        near: the problem, and the records near it.
        accuracy: checks configurations.
        rank: says which are the best.
        varied: how many of the best are varied in each turn.
    """
    problem, device, entries = near.problem, near.device, near.entries
    every = dict.fromkeys(chain(entries, portfolio(problem, device)))
    configs = accuracy.accurate([*every])
    compiled = [entries[config][0] if config in entries else None for config in configs]
    predictions = near.errors.predict(configs, problem, compiled)
    for most in varied:
        best = islice(rank(configs, predictions), most)
        changed, listed = variants(best, problem, device), {*configs}
        added = [config for config in accuracy.passing(changed) if config not in listed]
        configs = [*configs, *added]
        predictions = predictions.followed_by(near.errors.predict(added, problem))
    return configs, predictions


def nearly_fastest(ranked: Sequence[Choice]) -> Iterator[Choice]:
    """The choices expected to take at most `READY` times as long as the first, the fastest."""
    return takewhile(lambda choice: choice.cautious_us <= READY * ranked[0].cautious_us, ranked)


def _ready(ranked: Sequence[Choice], problem: Problem, device: Device) -> Iterator[Choice]:
    """The nearly fastest choices whose programs came with the package."""
    if installed_count(device.arch):
        for choice in nearly_fastest(ranked):
            if ready(choice.config, problem, device):
                yield choice


def ready(config: Config, problem: Problem, device: Device) -> bool:
    """Whether the programs of a configuration came with the package.

    Raises:
        OSError: if a source cannot be read.
    """
    launches = registry.plan(config, problem).launches
    return all(is_installed(launch.template, device.arch) for launch in launches)


def _by_promise(configs: Sequence[Config], predictions: Predictions) -> Iterator[Config]:
    cautious = predictions.cautious(CAUTION).tolist()
    ranked = sorted(zip(cautious, map(str, configs), configs, strict=True))
    return (config for time_us, _, config in ranked if time_us < math.inf)


@dataclass(frozen=True)
class Neighbourhood:
    """A problem and the records near it.

    Attributes:
        problem: the problem.
        device: the device that runs it.
        ranked: the nearest records, near or not, each behind its remoteness.
        objective: the time that decides: `cold` only if the nearest record has cold times.
    """

    problem: Problem
    device: Device
    ranked: Sequence[Near]
    objective: Objective

    @classmethod
    def of(
        cls, problem: Problem, device: Device, records: Records, objective: Objective = HOT
    ) -> Neighbourhood:
        """The neighbourhood of a problem: of records of the architecture's devices."""
        ranked = of_architecture(device, records).nearest(problem, device, TEACHERS)
        decides = ranked[0][1].timed(objective) if _near(ranked) else HOT
        return cls(problem, device, ranked, decides)

    @property
    def records(self) -> list[RecordDigest]:
        """The nearest records, near or not."""
        return [record for _, record in self.ranked]

    @cached_property
    def learnt(self) -> list[SampleGroup]:
        """The timed entries of the nearest records; none if not even the nearest is near."""
        return samples(self.records, self.objective) if _near(self.ranked) else []

    @cached_property
    def errors(self) -> ModelError:
        """The cost model's errors on the nearest records."""
        return ModelError(self.device, self.learnt)

    @cached_property
    def entries(self) -> dict[Config, tuple[Resources, RecordDigest]]:
        """The entries of near records that the problem can run, the best of each record first, with
        their resources as compiled and their records."""
        near = [record for apart, record in self.ranked[:NEIGHBOURS] if apart <= REACH]
        # One for all devices with the same resident clusters.
        tuned_on = {row.device: as_tuned(self.device, row.device) for row in near}
        built = {card: Legality(self.problem, card) for card in tuned_on.values()}
        legalities = {ran_on: built[card] for ran_on, card in tuned_on.items()}
        entries: dict[Config, tuple[Resources, RecordDigest]] = {}
        seen: set[tuple[Config, Legality]] = set()
        columns = (zip(repeat(row), row.entries()) for row in near)
        for row, (stated, compiled) in filter(None, chain.from_iterable(zip_longest(*columns))):
            config, legal = for_compute(stated, self.problem), legalities[row.device]
            if len(entries) == ENTRIES:
                break
            if (config, legal) not in seen:
                seen.add((config, legal))
                if config not in entries and legal(config):
                    entries[config] = compiled, row
        return entries


def _near(ranked: Sequence[Near]) -> bool:
    """Whether the first record, the nearest, is a neighbour."""
    return any(apart <= REACH for apart, _ in ranked[:1])


def _answer(choice: Choice, near: Neighbourhood, records: Records) -> Answer:
    """The answer that gives a choice, with its record if that still holds it."""
    problem, device, objective = near.problem, near.device, near.objective
    record, here = None, True
    if choice.config in near.entries:
        holder = near.entries[choice.config][1]
        here = same_model(holder.device, device)
        record = records.load(device if here else holder.device, holder.problem)
    how: How = "predicted" if record is None else "nearest" if here else "related"
    vendor, tune = False, tune_command(problem)
    if record is None:
        corrected = ", corrected by the records of other problems" if near.learnt else ""
        using = f"the model's choice{corrected}; {tune} finds a better configuration"
    else:
        where = "" if here else f" on {record.device.name}"
        alike = (record.problem.compute, record.problem.layout) == (problem.compute, problem.layout)
        beside = f"{record.problem.shape}{record.problem.extras}" if alike else record.problem
        using = f"a configuration of {beside}{where}; {tune} finds its own"
        # An epilogue or another output does not change how fast the vendor's library is.
        plain, asked = (
            replace(each, epilogue="none", output="same") for each in (record.problem, problem)
        )
        own = record.without_library or record
        vendor = here and plain == asked and vendor_wins(own, problem, objective)
    return Answer(
        problem=problem,
        device=device,
        config=choice.config,
        how=how,
        evidence="predicted",
        record=record,
        # Corrections of the model know nothing of the device's limits.
        time_us=max(choice.time_us, 1e6 * objective.least_seconds(problem, device)),
        note=f"{problem} is not tuned on {device.name}: using {using}",
        expected_loss=expected_loss("near" if near.learnt else "model", choice.deviation),
        vendor=vendor,
        objective=objective,
    )


def _advised(answer: Answer, near: Neighbourhood, records: Records) -> Answer:
    """A guess, with what to run if nothing is recorded of the device's model."""
    cards = {id(row.device): row.device for row in near.records}  # hashing a device takes longer
    tuned = any(same_model(card, near.device) for card in cards.values())
    if tuned or len(own(near.device, records)):
        return answer
    return replace(answer, advice=untuned_card(near.device))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limits BLAS to one thread while it is open: a choice multiplies matrices of some hundred
    rows, for which more threads wait longer than they work."""
    with _blas().limit(limits=1, user_api="blas"):
        yield


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process; to find them takes milliseconds."""
    return ThreadpoolController()


# The portfolio

FEWEST = 24
"""Members that suit a problem; with fewer, those come too that are only thought to be slow."""

FEWEST_OF_FAMILY = 8
"""Members of a family that suit a problem; with fewer, others of it are repaired until there are as
many.

On 99 drawn shapes for an H200 the choice of a look-up takes 1.5 % longer than the best of all
configurations by the cost model, 15 % at worst, and a choice takes 10 ms longer than without
repairs, which choose kernels that take 2.6 % longer, 35 % at worst.
"""


def portfolio(problem: Problem, device: Device) -> list[Config]:
    """The members, adapted to the problem; if none can run, a sample of all configurations."""
    adaptation = Adaptation(problem, device)
    adapted = {config: adaptation(config) for config in members_of(problem, device)}
    suiting = dict.fromkeys(filter(None, adapted.values()))
    left = [config for config, fitting in adapted.items() if fitting is None]
    suiting |= _repaired(left, adaptation, suiting)
    suiting |= _narrow(problem, device, Counter(config.family for config in suiting))
    if len(suiting) < FEWEST:
        suiting |= dict.fromkeys(filter(Legality(problem, device), left))
    return [*suiting] or sample(problem, device)


def _repaired(
    configs: Iterable[Config], adaptation: Adaptation, suiting: Collection[Config]
) -> dict[Config, None]:
    """Repaired configurations of the families that have too few for the problem."""
    counts = Counter(config.family for config in suiting)
    repaired: dict[Config, None] = {}
    for config in configs:
        if counts[config.family] < FEWEST_OF_FAMILY:
            fitting = adaptation.repaired(config)
            if fitting is not None and fitting not in repaired and fitting not in suiting:
                repaired[fitting] = None
                counts[config.family] += 1
    return repaired


def _narrow(problem: Problem, device: Device, counts: Counter[str]) -> dict[Config, None]:
    """The best configurations, by the cost model, of narrow families that suit the problem although
    too few of their members do. At 16x16x500000 in fp32 `gemv` takes 23 us, `simt` 40."""
    few = (
        name
        for name in registry.tuned(problem)
        if registry.find(name).narrow and counts[name] < FEWEST_OF_FAMILY
    )
    ranked = (cost.rank(sample(problem, device, name), problem, device) for name in few)
    return {config: None for best in ranked for _, config in best[:FEWEST_OF_FAMILY]}


def members_of(problem: Problem, device: Device) -> list[Config]:
    """The members for the precision on the architecture, those that cover most first."""
    arch = _listed(device)
    lists = _lists().get(arch, {})
    # Kernels of twins differ in the type alone, so that one list serves both.
    texts = lists.get(problem.compute) or lists.get(str(problem.precision.twin), [])
    return [for_compute(config, problem) for config in map(parsed, texts)]


def _listed(device: Device) -> str:
    """The listed architecture whose programs are nearest: that of the device, else the closest of
    the same major version; without any, its own."""
    major = device.compute_capability[0]
    kin = [arch for arch in _lists() if arch[3:-1] == str(major)]
    minor = device.compute_capability[1]
    return min(kin, key=lambda arch: abs(int(arch[-1]) - minor), default=device.arch)


@cache
def _lists() -> dict[str, dict[str, list[str]]]:
    """Texts of configurations by architecture and precision."""
    data = resources.files("autotune") / "data" / "portfolio.json"
    return msgspec.json.decode(data.read_bytes(), type=dict[str, dict[str, list[str]]])


# The vendor's library

OVERHEAD_US = 3.0
"""Microseconds beside the roofline's in the time that predictions are multiples of.

It is not a lower bound: cuBLAS's shortest recorded products, 128x128x128 in 16 bits, take 2.21 us
on an H100 and 2.24 us on an H200. Predictions hardly depend on it: with 1, 2 or 3 the median error
over 209 problems of an H200, each left out in turn, is 13.9, 12.8 and 13.0 %.
"""

VENDOR_CAUTION = 1.0
"""Standard deviations by which a configuration is taken to be slower than expected."""

_OTHER_TENSOR_CORES = {10: "Blackwell (tcgen05)", 11: "Blackwell (tcgen05)"}
"""Architectures, by their major compute capability, whose tensor cores have instructions that no
family uses."""

FASTER = "; cuBLAS is {} to be faster, and multiplies arrays of PyTorch and CuPy"


def beside_vendor(
    answer: Answer, ranked: Sequence[RecordDigest], records: Records, deviation: float
) -> Answer:
    """A guessed answer with the expected time of the vendor's library, which multiplies where it is
    expected to be faster. It does not run SwiGLU.

    Args:
        answer: a configuration for a problem that is not recorded, with its expected time.
        ranked: what is recorded of the architecture, the nearest problems first.
        records: all records.
        deviation: standard deviation of the log of the expected time.
    """
    problem, device, objective = answer.problem, answer.device, answer.objective
    time_us = answer.time_us
    if problem.gated or problem.precision.vendor is None or time_us is None:
        return answer
    timed = any(_vendor_us(row, objective) is not None for row in ranked)
    if not timed:
        shipped = of_architecture(device, Records.shipped_only())
        ranked = [row for _, row in shipped.nearest(problem, device, TEACHERS)]
        timed = any(_vendor_us(row, objective) is not None for row in ranked)
    if not timed:
        ranked = [row for _, row in elsewhere(device, records).nearest(problem, device, TEACHERS)]
    vendor_us = vendor_time_us(problem, device, ranked, objective)
    answer = replace(answer, vendor_us=vendor_us)
    spread = deviation
    if not timed:
        both = math.hypot(deviation, math.sqrt(2 * VENDOR_VARIANCES[0]))
        spread = math.inf if _unused_tensor_cores(problem, device) else both
    cautious_us = time_us * math.exp(VENDOR_CAUTION * spread)
    if answer.vendor or (vendor_us is not None and vendor_us >= cautious_us):
        return answer
    why = FASTER.format("expected" if timed else "taken")
    reason = "" if timed else f": {_untimed(problem, device)}"
    return replace(answer, vendor=True, note=f"{answer.note}{why}{reason}")


def vendor_time_us(
    problem: Problem, device: Device, records: Sequence[RecordDigest], objective: Objective = HOT
) -> float | None:
    """Predicted microseconds of the vendor's library; None if it is timed nowhere.

    Times on the device's model count alone if there are any: they show its distance from the
    roofline better than times on other cards.
    """
    timed = [(row, us) for row in records if (us := _vendor_us(row, objective)) is not None]
    cards = {id(row.device): row.device for row, _ in timed}  # hashing a device takes longer
    own = {place for place, card in cards.items() if same_model(card, device)}
    nearest = [pair for pair in timed if id(pair[0].device) in own] or timed
    if not nearest:
        return None
    ratios = {row.problem: us / _scale_of(row, objective) for row, us in nearest[:TEACHERS]}
    return _scale(problem, device, objective) * expected_ratio(problem, ratios)


def _vendor_us(row: RecordDigest, objective: Objective) -> float | None:
    """The measured microseconds of the vendor's library; None if it was not timed."""
    if row.evidence != "measured" or row.baseline is None:
        return None
    estimate = objective.estimate(row.baseline)
    return None if estimate is None else estimate.time_us


@lru_cache(maxsize=1024)
def _scale_of(row: RecordDigest, objective: Objective) -> float:
    return _scale(row.problem, row.device, objective)


def _scale(problem: Problem, device: Device, objective: Objective) -> float:
    """Microseconds that times are multiples of: the roofline's in the library's own precision."""
    asked = replace(problem, compute=problem.precision.vendor or problem.compute)
    return 1e6 * objective.least_seconds(asked, device) + OVERHEAD_US


def _untimed(problem: Problem, device: Device) -> str:
    """Why the library is taken to be faster on an architecture where it was not timed."""
    major, minor = device.compute_capability
    reason = f"it was never timed on compute capability {major}.{minor}"
    if unused := _unused_tensor_cores(problem, device):
        reason += f", and no kernel here uses the tensor cores of {unused}"
    return reason


def _unused_tensor_cores(problem: Problem, device: Device) -> str:
    """The architecture, if the problem is one for tensor cores that no kernel here uses."""
    major, _ = device.compute_capability
    return _OTHER_TENSOR_CORES.get(major, "") if problem.precision.on_tensor_cores else ""
