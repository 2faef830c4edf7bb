"""A hash of what would run: equal on two machines exactly if both would launch the same kernels.

For every problem, hot and cold, it covers the configuration, the programs of its launches (which
have the sources, the compiler and the architecture in their names), the evidence, and whether the
vendor's library was measured to be faster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from autotune.cuda import compiler, cublaslt
from autotune.cuda.program import source_hash
from autotune.device import Device
from autotune.errors import MissingError
from autotune.families import registry
from autotune.lookup.answer import Answer
from autotune.lookup.batch_invariant import batch_invariant
from autotune.lookup.lookup import Find
from autotune.measure.objective import TIMES
from autotune.problem import Problem
from autotune.records import Records, Store
from autotune.records.ranges import Range


@dataclass(frozen=True)
class Fingerprint:
    """A hash of what would run on a device.

    Attributes:
        digest: the SHA-256 of it all, in hexadecimal.
        shapes: fingerprint of each problem; None where nothing would run.
        ranges: fingerprint of each tuned range, by its text.
    """

    digest: str
    shapes: Mapping[Problem, str | None]
    ranges: Mapping[str, str]

    def __str__(self) -> str:
        return self.digest


def fingerprint(
    problems: Iterable[Problem], device: Device, store: Store, find: Find
) -> Fingerprint:
    """The fingerprint of problems, or without any of all records and ranges of the device.

    Args:
        problems: the problems.
        device: device that would run them.
        store: the user's records.
        find: the look-up.

    Raises:
        OSError: if a CUDA source cannot be read.
    """
    listed, records = [*problems], Records(store)
    ranges: dict[str, str] = {}
    if not listed:
        listed = [record.problem for record in records.records(device)]
        ranges = {
            f"{tuned}, {tuned.objective}": _digest(_range(tuned))
            for tuned in records.ranges(device)
        }
        ranges |= _invariant_ranges(records, device)
    shapes: dict[Problem, str | None] = {}
    for problem in sorted(set(listed)):
        answers = [find(problem, device, records, objective) for objective in TIMES]
        kernels = [_kernels(answer) for answer in answers if answer]
        shapes[problem] = _digest(kernels) if kernels else None
    whole = [[str(problem), digest] for problem, digest in shapes.items()]
    return Fingerprint(_digest([whole, sorted(ranges.items())]), shapes, ranges)


def _invariant_ranges(records: Records, device: Device) -> dict[str, str]:
    """The hash of each batch-invariant range, with its order and the kernels of its points."""
    ranges: dict[str, str] = {}
    for tuned in records.invariant_ranges(device):
        points, evidence = _range(tuned)
        answers = (batch_invariant(at, device, records, tuned.objective) for at in tuned.points)
        kernels = [_kernels(answer) for answer in answers if answer]
        content = [points, [evidence, tuned.order], kernels]
        ranges[f"{tuned}, {tuned.objective}, batch-invariant"] = _digest(content)
    return ranges


def _range(tuned: Range) -> list[object]:
    """The segments and the evidence of a range, as JSON data."""
    return [[(part.low, part.high, part.point) for part in tuned.segments], tuned.evidence]


def _kernels(answer: Answer) -> list[object]:
    """The kernels that an answer would run, as JSON data."""
    plan, arch = registry.plan(answer.config, answer.problem), answer.device.arch
    templates = [launch.template for launch in plan.launches]
    try:
        names = compiler.named_keys(templates, arch)
    except MissingError:  # no compiler, so that no other machine's programs are equal either
        names = {template: source_hash(template.source) for template in templates}
    programs = [cublaslt.version()] if plan.library else [names[each] for each in templates]
    return [str(answer.objective), str(answer.config), programs, answer.evidence, answer.vendor]


def _digest(content: object) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
