"""The look-up of batch-invariant ranges: every M gets a kernel of one order of summation."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from support.fake_runner import UNKNOWN
from support.sample_records import entry, record

import autotune
from autotune.cuda import compiler
from autotune.device import find
from autotune.errors import FrozenError, NotFoundError
from autotune.families.config import Config
from autotune.lookup import fingerprints
from autotune.lookup.answer import Answer
from autotune.lookup.batch_invariant import batch_invariant, order_recorded, range_of, required
from autotune.lookup.lookup import recorded
from autotune.model import space
from autotune.model.legality import Legality, order_of
from autotune.problem import Problem
from autotune.records import FamilyRecord, Records, Store, exchange, ranges
from autotune.records.ranges import Range, Segment

H100 = find("h100")

ORDER, OTHER = "wgmma bf16 swap=1 shared 1024", "wgmma bf16 swap=1 shared +(2*512)"

TOP = Problem(256, 512, 1024, "bf16", "nt")

SEGMENTS = (Segment(4, 32, 16), Segment(33, 256, 256))


def sized(m: int) -> Problem:
    return replace(TOP, m=m)


@cache
def of_order(m: int, order: str = ORDER) -> tuple[Config, ...]:
    return space.feasible(sized(m), H100, "wgmma", order).configs


def ordered(m: int, *configs: Config, order: str = ORDER) -> FamilyRecord:
    """A record whose configurations take 1, 2 ... microseconds; cuBLAS takes half of one."""
    entries = [replace(entry(16, 1.0 + i), config=config) for i, config in enumerate(configs)]
    plain = record(*entries, problem=sized(m), device=H100, baseline_us=0.5)
    shared = plain.device, plain.evidence, plain.entries, plain.baseline, plain.provenance
    return FamilyRecord(*shared, plain.problem, "auto", order)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    store = Store(tmp_path)
    store.save(ordered(16, *of_order(16)[:2]))
    store.save(ordered(256, *of_order(256)[:2]))
    ranges.save(tmp_path, Range(H100, TOP, "m", SEGMENTS, order=ORDER))
    return Records(store)


def answer(problem: Problem, records: Records) -> Answer:
    found = batch_invariant(problem, H100, records)
    assert found is not None
    assert str(order_of(found.config, problem)) == ORDER
    assert Legality(problem, H100, ORDER)(found.config)
    assert (found.how, found.vendor) == ("range", False)
    return found


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 8, 9, 16, 17, 32, 33, 64, 65, 255, 256, 257, 2048])
def test_every_m_runs_in_the_order_of_the_range(m: int, records: Records) -> None:
    answer(sized(m), records)


@pytest.mark.parametrize(("m", "point"), [(16, 16), (20, 16), (40, 256), (256, 256), (300, 256)])
def test_m_runs_the_kernel_of_its_point(m: int, point: int, records: Records) -> None:
    found = answer(sized(m), records)
    assert found.config in of_order(point)[:2]
    assert found.evidence == ("measured" if m == point else "predicted")
    assert (found.time_us is not None) == (m == point)


def test_entry_of_another_order_is_passed_over(records: Records) -> None:
    """A record may hold one after the kernels have changed."""
    records.store.withdraw(ordered(16, of_order(16)[0]))
    records.store.save(ordered(16, of_order(16, OTHER)[0], of_order(16)[1]))
    assert answer(sized(16), records).config == of_order(16)[1]


def test_epilogue_runs_in_the_order_of_the_plain_product(records: Records) -> None:
    problem = replace(TOP, m=16, epilogue="bias_silu")
    assert answer(problem, records).config in of_order(16)[:2]


@pytest.mark.parametrize("changes", [{"n": 1024}, {"k": 512}, {"layout": "nn"}, {"batch": 2}])
def test_other_product_has_no_answer(changes: dict[str, int | str], records: Records) -> None:
    problem = replace(TOP, **changes)  # type: ignore[arg-type]
    assert batch_invariant(problem, H100, records) is None
    assert order_recorded(problem, H100, records) is None
    command = (
        f"`autotune tune 1..8192x{str(problem).partition('x')[2]} --batch-invariant --device x`"
    )
    with pytest.raises(NotFoundError, match=re.escape(command)):
        required(problem, H100, records, option=" --device x")


def test_required_answer_is_that_of_the_ranges(records: Records) -> None:
    assert required(sized(20), H100, records) == batch_invariant(sized(20), H100, records)


ALIGNED = Problem(256, 512, 1024, "bf16", "tn")
"""A product whose order of summation needs rows of A that start at multiples of 16 bytes."""


@pytest.fixture
def aligned(tmp_path: Path) -> Records:
    """A range of `ALIGNED` whose order has no kernel for odd M."""
    feasible = space.feasible(replace(ALIGNED, m=9), H100, "wgmma").configs
    order = order_of(space.feasible(ALIGNED, H100, "wgmma").configs[0], ALIGNED)
    assert str(order) not in {str(order_of(config, ALIGNED)) for config in feasible}
    segments = (Segment(16, 256, 256),)
    ranges.save(tmp_path, Range(H100, ALIGNED, "m", segments, order=str(order)))
    return Records(Store(tmp_path))


def test_order_without_a_kernel_names_the_way_out(aligned: Records, tmp_path: Path) -> None:
    (tuned,) = aligned.invariant_ranges(H100)
    with pytest.raises(NotFoundError) as raised:
        required(replace(ALIGNED, m=9), H100, aligned, option=" --device h100")
    first, forget, _, tune, _ = str(raised.value).split("`")
    assert f"can run {replace(ALIGNED, m=9)} on {H100.name}" in first
    assert shlex.split(forget) == ["rm", str(ranges.path_of(tmp_path, tuned))]
    assert tune == "autotune tune 9..256x512x1024:bf16:tn --batch-invariant --device h100"
    subprocess.run(forget, shell=True, check=True)
    assert order_recorded(ALIGNED, H100, aligned) is None


def test_new_range_outside_the_order_names_the_way_out(
    aligned: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(aligned.store.root))
    with pytest.raises(NotFoundError, match=r"`rm .*-invariant\.json` forgets the order"):
        autotune.tune("9..256x512x1024:bf16:tn", device="h100", batch_invariant=True)


def test_frozen_look_up_does_not_guess_in_the_order(records: Records) -> None:
    for m in (16, 256):
        records.store.withdraw(ordered(m, of_order(m)[0]))
    assert required(sized(16), H100, records).record is None
    with (
        autotune.policy(frozen=True),
        pytest.raises(FrozenError, match=r"no record of 4\.\.256x512x1024"),
    ):
        required(sized(16), H100, records)


def test_record_names_the_range_that_it_is_a_point_of(records: Records) -> None:
    (tuned,) = records.invariant_ranges(H100)
    assert range_of(ordered(16, of_order(16)[0]), records) == tuned
    assert range_of(ordered(20, of_order(20)[0]), records) is None
    assert range_of(ordered(16, of_order(16, OTHER)[0], order=OTHER), records) is None


def test_usual_lookup_ignores_batch_invariant_ranges(records: Records) -> None:
    assert recorded(sized(16), H100, records) is None
    assert recorded(sized(20), H100, records) is None


def test_second_range_keeps_the_order_of_the_first(records: Records) -> None:
    assert order_recorded(replace(TOP, m=9000), H100, records) == ORDER


def fingerprint_of(records: Records, *problems: Problem) -> str:
    return str(fingerprints.fingerprint(problems, H100, records.store, batch_invariant))


@pytest.fixture
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names programs without a compiler."""
    monkeypatch.setattr(
        compiler, "named_keys", lambda templates, _: {each: each.expression for each in templates}
    )


@pytest.mark.usefixtures("_keys")
def test_fingerprint_covers_the_order_and_its_kernels(records: Records, tmp_path: Path) -> None:
    before, alone = fingerprint_of(records), fingerprint_of(records, sized(16))
    assert before == fingerprint_of(records)
    records.store.withdraw(ordered(16, of_order(16)[0]))
    records.store.save(ordered(16, of_order(16)[1]))
    changed = fingerprint_of(records)
    assert changed != before
    assert fingerprint_of(records, sized(16)) != alone
    ranges.save(tmp_path, Range(H100, TOP, "m", SEGMENTS, order=OTHER))
    assert fingerprint_of(records) != changed


def test_bundle_has_the_records_of_the_range(records: Records, tmp_path: Path) -> None:
    bundle = exchange.chosen(records.store, None, ())
    assert [item.problem for item in bundle.records] == [sized(16), sized(256)]
    store = Store(tmp_path / "other")
    for item in bundle.records:
        store.adopt(item, UNKNOWN)
    for tuned in bundle.ranges:
        ranges.save(store.root, tuned)
    answer(sized(16), Records(store))
