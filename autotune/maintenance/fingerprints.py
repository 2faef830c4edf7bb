"""A hash of what would run: equal on two machines exactly if both would launch the same kernels.

For every problem, hot and cold, it covers the configuration, the programs of its launches (which
have the sources, the compiler and the architecture in their names), the evidence, and whether the
vendor's library was measured to be faster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from autotune.cuda import compiler
from autotune.cuda.program import source_hash
from autotune.device import Device
from autotune.errors import MissingError
from autotune.families import registry
from autotune.families.plan import Template
from autotune.lookup.answer import Answer
from autotune.lookup.batch_invariant import batch_invariant
from autotune.lookup.lookup import Find
from autotune.problem import Problem
from autotune.records import Records, Store
from autotune.runners.objective import TIMES


@dataclass(frozen=True)
class Fingerprint:
    """A hash of what would run on a device.

    Attributes:
        digest: the SHA-256 of it all, in hexadecimal.
        shapes: that of each problem; None where nothing would run.
        ranges: that of each tuned range, by its text.
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
        device: what would run them.
        store: the user's records.
        find: the look-up.

    Raises:
        OSError: if a CUDA source cannot be read.
    """
    listed, records = [*problems], Records(store)
    ranges: dict[str, str] = {}
    if not listed:
        listed = [record.problem for record in records.records(device)]
        for tuned in records.ranges(device):
            points = [(part.low, part.high, part.point) for part in tuned.segments]
            ranges[f"{tuned}, {tuned.objective}"] = _digest([points, tuned.evidence])
        ranges |= _invariant_ranges(records, device)
    answers = {
        problem: [find(problem, device, records, objective) for objective in TIMES]
        for problem in sorted(set(listed))
    }
    names = _programs(answer for pair in answers.values() for answer in pair)
    shapes = {
        problem: _digest([_content(answer, names) for answer in filter(None, pair)])
        if any(pair)
        else None
        for problem, pair in answers.items()
    }
    whole = [[str(problem), digest] for problem, digest in shapes.items()]
    return Fingerprint(_digest([whole, sorted(ranges.items())]), shapes, ranges)


def _invariant_ranges(records: Records, device: Device) -> dict[str, str]:
    """The hash of each batch-invariant range, with its order and the kernels of its points."""
    answers = {
        tuned: [batch_invariant(point, device, records, tuned.objective) for point in tuned.points]
        for tuned in records.invariant_ranges(device)
    }
    names = _programs(answer for points in answers.values() for answer in points)
    return {
        f"{tuned}, {tuned.objective}, batch-invariant": _digest(
            [
                [(part.low, part.high, part.point) for part in tuned.segments],
                [tuned.evidence, tuned.order],
                [_content(answer, names) for answer in filter(None, points)],
            ]
        )
        for tuned, points in answers.items()
    }


def _content(answer: Answer, names: Mapping[tuple[Template, str], str]) -> list[object]:
    """The kernels that an answer would run, as JSON data."""
    arch = answer.device.arch
    programs = [names[template, arch] for template in _templates(answer)]
    return [str(answer.objective), str(answer.config), programs, answer.evidence, answer.vendor]


def _programs(answers: Iterable[Answer | None]) -> dict[tuple[Template, str], str]:
    """The name of the program of each template on an architecture."""
    wanted: dict[str, dict[Template, None]] = {}
    for answer in filter(None, answers):
        wanted.setdefault(answer.device.arch, {}).update(dict.fromkeys(_templates(answer)))
    try:
        return {
            (template, arch): name
            for arch, templates in wanted.items()
            for template, name in compiler.named_keys(templates, arch).items()
        }
    except MissingError:  # no compiler, so that no other machine's programs are equal either
        return {
            (template, arch): source_hash(template.source)
            for arch, templates in wanted.items()
            for template in templates
        }


def _templates(answer: Answer) -> Iterator[Template]:
    plan = registry.plan(answer.config, answer.problem)
    return (launch.template for launch in plan.launches)


def _digest(content: object) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
