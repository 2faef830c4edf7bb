"""The recorded problems near a problem, and what they teach: the cost model's errors, and the
accuracy of the vendor's library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from itertools import chain

import numpy as np

from autotune.device import Device, same_architecture, same_model
from autotune.families.summation import measured_limit, possible_limit, promised_limit
from autotune.lookup.digest import SIZES, RecordDigest, of_bundle, of_folder, samples, sizes_of
from autotune.measure.objective import HOT, Objective
from autotune.model.model_error import ModelError
from autotune.model.space import AccuracyFilter
from autotune.problem import Problem
from autotune.records import Record, Records, shipped
from autotune.records.record import weakness

Neighbour = Record | RecordDigest

REACH = 6.0
"""Octaves within which a record is a neighbour."""

# Distances for differences other than size, in octaves.
A_LAYOUT, A_COMPUTE, AN_OUTPUT, AN_EPILOGUE, A_DEVICE = 1.0, 2.0, 0.2, 0.1, 1.0

A_TWIN = 0.1

A_SCALE, SCALED_BLOCKS, AN_ACCUMULATION = 0.1, 1.0, 0.5

DECIMALS = 9
"""Digits of a remoteness, so that records at the same distance tie whatever the rounding."""

TEACHERS = 128
"""Records that choices learn from, the nearest."""


def differences(
    recorded: Problem, recorded_on: Device, asked: Problem, device: Device
) -> tuple[float, ...]:
    """The distance of two problems in octaves, for each difference other than size."""
    letters = zip(recorded.layout, asked.layout, strict=True)
    twins = recorded.precision.name == asked.precision.twin
    outputs_differ = recorded.output_type != asked.output_type and recorded.output != asked.output
    return (
        A_LAYOUT * sum(letter != wanted for letter, wanted in letters),
        (A_TWIN if twins else A_COMPUTE) * (recorded.precision is not asked.precision),
        _eight_bit(recorded, asked),
        AN_OUTPUT * outputs_differ,
        AN_EPILOGUE * (recorded.epilogue != asked.epilogue),
        A_DEVICE * (not same_model(recorded_on, device)),
    )


def _eight_bit(recorded: Problem, asked: Problem) -> float:
    """The distance of scales and accumulation, in octaves: block scales and promoted sums change
    the main loop, other scales the epilogue."""
    blocks = (recorded.scale == "block") != (asked.scale == "block")
    return (
        SCALED_BLOCKS * blocks
        + A_SCALE * (recorded.scale != asked.scale)
        + AN_ACCUMULATION * (recorded.accumulate != asked.accumulate)
    )


def learn_errors(
    device: Device, records: Iterable[Record], objective: Objective = HOT
) -> ModelError:
    """The cost model's errors on a few records, from which those on problems near them follow.

    The model predicts hot times; with the objective "cold" the errors lead to cold ones.
    """
    usable = (record for record in records if record.evidence != "predicted")
    return ModelError(device, samples([*map(RecordDigest.of, usable)], objective))


def accuracy_filter(
    problem: Problem, device: Device, records: Iterable[Neighbour], *, verified: bool = False
) -> AccuracyFilter:
    """Checks configurations by the vendor's error where a record has it, else by its bounds.

    Look-ups run kernels that nothing has verified: these have to keep the accuracy bound however
    accurate the vendor's library is. A race is `verified`: only kernels that cannot keep it are
    refused.
    """
    for record in records:
        error = record.baseline.relative_error if record.baseline else None
        if error is not None and _same_sums(record, problem) and same_model(record.device, device):
            return AccuracyFilter(problem, measured_limit(problem, error))
    limit = possible_limit if verified else promised_limit
    return AccuracyFilter(problem, limit(problem, device))


def _same_sums(record: Neighbour, problem: Problem) -> bool:
    """Whether the vendor's library adds up the same products: whatever follows, and in `tf32x3`
    what it does in `f32`."""
    if (record.problem.m, record.problem.n, record.problem.k) != (problem.m, problem.n, problem.k):
        return False

    def products(posed: Problem) -> tuple[object, ...]:
        return posed.batch, posed.layout, posed.precision.vendor, posed.output_type

    return products(record.problem) == products(problem)


SEVERAL = 4
"""Most records of a problem that are looked at, of as many bundles and folders."""

Serves = Callable[[Device, Device], bool]

Near = tuple[float, RecordDigest]
"""A record behind its remoteness in octaves."""


def own(device: Device, records: Records) -> Pool:
    """The problems recorded on the device's model."""
    return _pool(device, records, same_model)


def of_architecture(device: Device, records: Records) -> Pool:
    """The problems recorded on any model of the device's architecture, which all teach.

    On 65 and 128 shapes of the suites of an H100 and an H200, each size left out in turn, look-ups
    reach 0.971 and 0.968 of the fastest recorded time by the records of both cards, 0.970 and 0.967
    by the card's own, and 0.972 and 0.967 by the other's; without networks 0.955 and 0.910, 0.958
    and 0.907, 0.927 and 0.902.
    """
    return _pool(device, records, same_architecture)


def elsewhere(device: Device, records: Records) -> Pool:
    """The problems recorded on other architectures."""
    return _pool(device, records, lambda own, card: not same_architecture(own, card))


def _pool(device: Device, records: Records, serves: Serves) -> Pool:
    """The records on devices that serve: those of the store, then those of bundles."""
    cards = {card.slug: card for card in records.devices() if serves(device, card)}
    folders = (of_folder(records.store, card) for card in cards.values())
    bundles = shipped.decoded(partial(serves, device), of_bundle)
    return _of((*folders, *bundles), device, serves)


@lru_cache(maxsize=8)
def _of(listed: tuple[tuple[RecordDigest, ...], ...], device: Device, serves: Serves) -> Pool:
    digests = [*chain.from_iterable(listed)]
    cards = {id(digest.device): digest.device for digest in digests}  # few; their hashes are slow
    serving = {number for number, card in cards.items() if serves(device, card)}
    return Pool(digest for digest in digests if id(digest.device) in serving)


class Pool:
    """Measured and replayed records, with what tells how near they are to any problem.

    Args:
        digests: digests of records. Of equally good records of a problem the first serves.
    """

    def __init__(self, digests: Iterable[RecordDigest]) -> None:
        self._digests = [digest for digest in digests if digest.evidence != "predicted"]
        kinds: dict[tuple[int, int], RecordDigest] = {}  # identities are faster than hashes
        for digest in self._digests:
            kinds.setdefault((id(digest.kind), id(digest.device)), digest)
        self._kinds = [*kinds.values()]
        places = {key: place for place, key in enumerate(kinds)}
        sizes = [digest.sizes for digest in self._digests]
        self._sizes = np.array(sizes, np.int64).reshape(-1, len(SIZES))
        self._kind_of = np.array(
            [places[id(digest.kind), id(digest.device)] for digest in self._digests], np.int64
        )
        sorted_kinds = sorted({digest.kind for digest in self._kinds})
        self._order = np.array([sorted_kinds.index(digest.kind) for digest in self._kinds])

    @property
    def problems(self) -> list[Problem]:
        """The recorded problems; some may be listed several times."""
        return [digest.problem for digest in self._digests]

    def __len__(self) -> int:
        return len(self._digests)

    def nearest(self, problem: Problem, device: Device, count: int) -> list[Near]:
        """The records of the nearest problems; of equally near problems the first."""
        if not self._digests:
            return []
        apart = np.array(
            [sum(differences(kind.kind, kind.device, problem, device)) for kind in self._kinds]
        )
        octaves = np.log2(self._sizes / sizes_of(problem))
        remote = np.round(np.sqrt(np.square(octaves).sum(1)) + apart[self._kind_of], DECIMALS)
        last = min(SEVERAL * count, len(remote)) - 1
        rows = np.flatnonzero(remote <= np.partition(remote, last)[last])
        m, n, k, batch = self._sizes[rows].T
        keys = np.stack((batch, self._order[self._kind_of[rows]], k, n, m, remote[rows]))
        order = np.lexsort(keys)
        numbers = np.diff(keys[:, order], prepend=np.nan).any(axis=0).cumsum()
        rows, numbers = rows[order][numbers <= count], numbers[numbers <= count]
        best: dict[int, Near] = {}
        for number, near, row in zip(
            numbers.tolist(), remote[rows].tolist(), rows.tolist(), strict=True
        ):
            digest = self._digests[row]
            if number not in best or weakness(digest) < weakness(best[number][1]):
                best[number] = near, digest
        return [*best.values()]
