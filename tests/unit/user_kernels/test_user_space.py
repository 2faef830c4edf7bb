"""Legal combinations of a user kernel's parameters: as brute force finds them, and in time."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import pytest
from support.fake_runner import ORIGIN, compiled
from support.sample_records import H100
from support.sample_user_kernels import LEGAL, KernelRunner, tunable

from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.measure.measurement import Failure, Measurement
from autotune.records import Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.search.axes import axes_of
from autotune.tuning.search.proposer import Proposer
from autotune.tuning.trials import Quarantine, Trial
from autotune.user_kernels import space
from autotune.user_kernels.space import Enumeration, LegalSpace, checked_constraints
from autotune.user_kernels.tunable import KernelTunable

Values = Mapping[str, Sequence[Any]]

BYTES = (
    "(block_size_x * tile_size_x + temporal_tiling_factor * 2)"
    " * (block_size_y * tile_size_y + temporal_tiling_factor * 2) * (2 + sh_power) * 4"
)
HOTSPOT: Values = {
    "block_size_x": [1, 2, 4, 8, 16, *range(32, 1025, 32)],
    "block_size_y": [1, 2, 4, 8, 16, 32],
    **{f"tile_size_{axis}": range(1, 11) for axis in "xy"},
    "temporal_tiling_factor": range(1, 11),
    "loop_unroll_factor_t": range(1, 11),
    "sh_power": [0, 1],
    "blocks_per_sm": [0, 1, 2, 3, 4],
}
HOTSPOT_CONSTRAINTS = [
    "block_size_x * block_size_y >= 32",
    "temporal_tiling_factor % loop_unroll_factor_t == 0",
    "block_size_x * block_size_y <= 1024",
    f"{BYTES} <= 166912",
    f"blocks_per_sm == 0 or {BYTES} * blocks_per_sm <= 233472",
]
GEMM: Values = {
    **{name: [16, 32, 64, 128] for name in ("MWG", "NWG")},
    "KWG": [16, 32],
    **{name: [8, 16, 32] for name in ("MDIMC", "NDIMC", "MDIMA", "NDIMB")},
    "KWI": [2, 8],
    **{name: [1, 2, 4, 8] for name in ("VWM", "VWN")},
    **{name: [0, 1] for name in ("STRM", "STRN", "SA", "SB")},
}
GEMM_CONSTRAINTS = [
    "KWG % KWI == 0",
    "MWG % (MDIMC * VWM) == 0",
    "NWG % (NDIMC * VWN) == 0",
    "MWG % (MDIMA * VWM) == 0",
    "NWG % (NDIMB * VWN) == 0",
    "KWG % (MDIMC * NDIMC / MDIMA) == 0",
    "KWG % (MDIMC * NDIMC / NDIMB) == 0",
    "MDIMC * NDIMC <= 1024",
    "SA * KWG * MWG * 4 + SB * KWG * NWG * 4 <= 49152",
]


def function(text: str, names: Values) -> Any:
    """The text as a function of a mapping."""
    words = re.sub(r"[A-Za-z_]\w*", lambda m: f"p['{m[0]}']" if m[0] in names else m[0], text)
    return eval(f"lambda p: {words}")


def legal(values: Values, constraints: Any) -> LegalSpace:
    parameters = {name: tuple(own) for name, own in values.items()}
    return Enumeration("k", parameters, checked_constraints(constraints, parameters)).space()


CASES = [
    "a * b <= c + 3",
    "a % b == 0",
    "b != 0 and c % b == 0",
    "a == 0 or b <= c / 2",
    "not a > b",
    "a < b < c < 9",
    "max(a, b) - min(b, c) <= 4",
    "(a if b > 2 else c) != 3",
    "a in (0, 1, 4)",
    "b ** 2 + c ** 2 < 30 or a",
    "10**14 * a * b * c < 3 * 10**15",
    "b",
    "(a == 1) + (b == 2) + (c > 0) >= 1",
    "word == 'float' or a > 1",
    "0.5 * a < share * b",
]


def random_space(seed: int) -> tuple[Values, list[str]]:
    draw = random.Random(seed)
    values: dict[str, Sequence[Any]] = {
        name: draw.sample(range(8), draw.randint(2, 6)) for name in "abcd"
    }
    values |= {"word": ["float", "double"], "share": [0.25, 1.5]}
    names = draw.sample([*values], len(values))
    constraints = ["b != 0", *draw.sample(CASES, draw.randint(1, 5))]
    return {name: values[name] for name in names}, constraints


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("form", ["texts", "functions", "both"])
@pytest.mark.parametrize("small", [True, False])
def test_random_spaces_equal_brute_force(
    seed: int, form: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, texts = random_space(seed)
    functions = [function(text, values) for text in texts]
    given = {
        text: text if form == "texts" or (form == "both" and place % 2) else own
        for place, (text, own) in enumerate(zip(texts, functions, strict=True))
    }
    if not small:
        monkeypatch.setattr(space, "IN_ORDER", 0)
        monkeypatch.setattr(space, "BLOCK", 64)
        monkeypatch.setattr(space, "SAMPLE", 4)
    found = legal(values, given)
    kept, first, broken = [], Counter[str](), Counter[str]()
    for chosen in product(*values.values()):
        config = Config.of("k", dict(zip(values, chosen, strict=True)))
        reasons = (
            text for text, own in zip(texts, functions, strict=True) if not own(config.values)
        )
        reason = next(reasons, None)
        if reason is None:
            kept.append(config)
        else:
            first[reason] += 1
            broken.update([reason] if reason == "b != 0" else [reason, *reasons])
    assert [*found.configs] == kept
    assert found.rejected.keys() == found.examples.keys()
    if small:
        assert found.rejected == first
    else:
        # Each is counted once. Those that break the first may be found under another.
        assert sum(found.rejected.values()) == sum(first.values())
        zeros = first["b != 0"]
        assert all(count <= broken[text] + zeros for text, count in found.rejected.items())
    for text, config in found.examples.items():
        assert not function(text, values)(config.values)


@pytest.mark.parametrize(
    ("values", "constraints", "count", "seconds"),
    [
        ({**HOTSPOT, "blocks_per_sm": [0]}, HOTSPOT_CONSTRAINTS, 191_890, 0.4),
        (HOTSPOT, HOTSPOT_CONSTRAINTS, 755_754, 0.4),
        (GEMM, GEMM_CONSTRAINTS, 241_600, 0.25),
    ],
)
@pytest.mark.parametrize("texts", [True, False])
def test_large_spaces_are_enumerated_in_time(
    values: Values, constraints: list[str], count: int, seconds: float, texts: bool
) -> None:
    given = constraints if texts else [function(text, values) for text in constraints]
    start = time.process_time()
    found = legal(values, given)
    assert time.process_time() - start < 5 * seconds * (1 if texts else 3)
    assert len(found.configs) == count
    total = prod(map(len, values.values()))
    assert count + sum(found.rejected.values()) == total


def hotspot(**changes: Any) -> KernelTunable:
    defined = {"parameters": HOTSPOT, "constraints": HOTSPOT_CONSTRAINTS, "block": None}
    covered = [("block_size_x", "tile_size_x"), "block_size_y * tile_size_y"]
    own = {"grid": None, "problem_size": (4096, 4096), "grid_div": covered, "name": "saxpy<>"}
    return tunable(**defined | own | changes)


def test_large_space_is_searched_in_time(store: Store) -> None:
    class Timed(KernelRunner):
        def _outcome(self, config: Config) -> Measurement | Failure:
            times.append(time.process_time())
            return Measurement(config.integer("tile_size_x") + 1.0, 0.1, 20, 9.0)

    times = [time.process_time()]
    tuned = hotspot()
    tuned.digest("source")
    tune(tuned, Timed(), store, Search(trials=20), compile=compiled, origin=ORIGIN)
    assert times[1] - times[0] < 12
    assert times[20] - times[1] < 25


def test_space_is_enumerated_once_a_call(store: Store) -> None:
    asked: list[Mapping[str, Any]] = []

    def ask(p: Mapping[str, Any]) -> bool:
        asked.append(dict(p))
        return True

    tuned = tunable(constraints=[ask])
    tuned.digest("source")
    again = replace(tuned, verified="a configuration")
    tune(again, KernelRunner(), store, Search(trials=1), compile=compiled, origin=ORIGIN)
    assert len({tuple(values.items()) for values in asked}) == again.kernel.size
    assert len(asked) <= again.kernel.size + 2


def test_digest_of_a_small_space_stays() -> None:
    assert tunable().digest("a").startswith("723516727c3a9744d60fa485cfe68c5a")


def test_digest_of_a_large_space_covers_geometry() -> None:
    digests = {hotspot(**changes).digest("a") for changes in ({}, {"block": 64}, {"shared": 8})}
    assert len(digests) == 3
    constraints = [function(text, HOTSPOT) for text in HOTSPOT_CONSTRAINTS]
    assert hotspot(constraints=constraints).digest("a") in digests


def test_table_of_a_large_space_is_refused() -> None:
    with pytest.raises(UsageError, match=r"has 22,200,000 combinations .* at most 250,000"):
        next(hotspot().rejected(H100))


def test_legal_configurations_are_limited() -> None:
    many: Values = {name: range(100) for name in "ABCD"}
    assert len(legal(many, ["A == B", "B == C"]).configs) == 10_000
    with pytest.raises(UsageError, match="more than 2,000,000 configurations fulfil all"):
        legal(many, ["A < 50"])


def test_checked_combinations_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "MOST_WALKED", 10_000)
    with pytest.raises(UsageError, match="more than 10,000 combinations of some parameters"):
        legal({name: range(100) for name in "ABCD"}, ["A + B + C + D == 7"])


# Functions


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(
    "predicate",
    [
        lambda p: all(value > 0 for value in p.values()),
        lambda p: min(dict(p).values()) > 0,
        lambda p: 0 not in {**p}.values(),
        lambda p: not [name for name, value in p.items() if value == 0],
        lambda p: all(p.get(name, 1) for name in p) and p.get("other") is None,
        lambda p: 0 not in p.copy().values() and len(p) == 3,
        lambda p: 0 not in (p | {"more": 1}).values(),
    ],
)
def test_functions_may_read_the_mapping_in_any_way(
    small: bool, predicate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "IN_ORDER", 100 if small else 0)
    found = legal({"a": (0, 1, 2), "b": (1, 0), "c": (3, 4)}, {"positive": predicate})
    assert [tuple(config.values.values()) for config in found.configs] == [
        (1, 1, 3),
        (1, 1, 4),
        (2, 1, 3),
        (2, 1, 4),
    ]


def test_functions_cannot_change_the_values() -> None:
    with pytest.raises(UsageError, match="constraint 'pop' fails for k:a=1: AttributeError"):
        legal({"a": (1,)}, {"pop": lambda p: p.pop("a")})


def test_each_combination_of_read_values_is_asked_once() -> None:
    asked: list[int] = []

    def ask(p: Mapping[str, int]) -> bool:
        asked.append(p["a"])
        return p["a"] != 3

    assert len(legal({"a": range(10), "b": range(100)}, [ask]).configs) == 900
    assert len(asked) <= 11


@pytest.mark.parametrize("small", [True, False])
def test_constraint_may_rely_on_those_before_it(
    small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "IN_ORDER", 1000 if small else 0)
    values: Values = {"a": range(4), "b": range(4), "c": range(2)}
    guarded = {"set": "b + c * 0 > 0", "divides": lambda p: p["a"] % p["b"] == 0}
    assert len(legal(values, guarded).configs) == 2 * (4 + 2 + 2)
    with pytest.raises(UsageError, match=r"'divides' fails for k:a=0,b=0.*ZeroDivision"):
        legal(values, {"divides": guarded["divides"]})


@pytest.mark.parametrize("texts", [True, False])
def test_single_constraint_rejects_early(texts: bool) -> None:
    values = {name: range(1, 31) for name in "abcdef"}
    joined = "a * b == 900 and c == d and d + e + f == 3"
    start = time.process_time()
    found = legal(values, [joined if texts else function(joined, values)])
    assert time.process_time() - start < 5
    assert [*map(str, found.configs)] == ["k:a=30,b=30,c=1,d=1,e=1,f=1"]
    assert [*found.rejected.values()] == [30**6 - 1]


# Texts and lists


def test_constraints_of_a_list_have_reasons() -> None:
    def fits(p: Mapping[str, int]) -> bool:
        return p["a"] < 3

    found = legal({"a": range(5)}, ["a > 0", fits, lambda p: p["a"] != 1])
    assert found.rejected == {"a > 0": 1, "fits 1": 2, "lambda 2": 1}


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ("a < 1", "constraints is 'a < 1'; give a list of functions and texts"),
        (
            ["tile < 1"],
            "constraint 'tile < 1' names 'tile', which is not a parameter; there are a, b",
        ),
        (["a < 1 && b"], "not a Python expression: .*with and, or, not for &&"),
        (["a <"], "is 'a <', which is not a Python expression: invalid syntax"),
        (
            ["a.real > 1"],
            "has 'a.real'; give an expression of numbers, parameters, operators and abs",
        ),
        (["__import__('os')"], "has \"__import__\\('os'\\)\"; give an expression"),
        (["max(a, key=b)"], "has 'max"),
        (["[a for a in (1,)]"], "give an expression of numbers"),
        (["a == b'1'"], "has \"b'1'\""),
        (["(" * 300 + "a" + ")" * 300], "not a Python expression"),
        ({"both": ["a < 1", "b < 1"]}, r"constraint 'both' is \['a < 1', 'b < 1'\]; give a short"),
        ([7], "constraint .function 0. is 7; give a short reason and a function"),
    ],
)
def test_invalid_constraints_are_refused(constraints: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        legal({"a": (1, 2), "b": (3,)}, constraints)


@pytest.mark.parametrize(
    ("changes", "geometry"),
    [
        ({"grid": "ceil(1000 / THREADS)"}, ((32, 1, 1), (32, 1, 1), 0)),
        ({"grid": ("THREADS // 8", 3)}, ((4, 3, 1), (32, 1, 1), 0)),
        ({"block": "(EACH, THREADS)", "shared": "4 * THREADS"}, ((16, 1, 1), (2, 32, 1), 128)),
        (
            {"grid": None, "problem_size": 512, "grid_div": ["EACH * 4"]},
            ((64, 1, 1), (32, 1, 1), 0),
        ),
        (
            {"grid": None, "problem_size": "THREADS * 8", "grid_div": [("EACH", "4 + EACH", 2)]},
            ((11, 1, 1), (32, 1, 1), 0),
        ),
    ],
)
def test_geometry_may_be_texts(changes: dict[str, Any], geometry: Any) -> None:
    config = Config.of("saxpy", {"THREADS": 32, "EACH": 2})
    launch = tunable(**changes).plan(config).main
    assert (launch.grid, launch.block, launch.shared) == geometry


# Candidates


def test_table_and_list_are_searched_alike() -> None:
    found = legal({**GEMM, "VWM": [1, 2]}, GEMM_CONSTRAINTS).configs[:3000]
    listed = tuple(found)
    for of_table, of_list in zip(axes_of(found), axes_of(listed), strict=True):
        assert (of_table.name, of_table.values) == (of_list.name, of_list.values)
        assert (of_table.codes == of_list.codes).all()
    proposers = [Proposer(configs, seed=1) for configs in (found, listed)]
    for _ in range(30):
        first, second = (proposer.ask() for proposer in proposers)
        assert first == second
        assert first is not None
        for proposer in proposers:
            proposer.tell(Trial(first, Measurement(1.0 + hash(first.params) % 7, 0.1, 20, 9.0)))


def test_places_of_a_table_are_those_of_its_rows() -> None:
    found = legal({"a": (3, 1, 0), "b": ("x", "y"), "c": (0.5, 1.5)}, ["a or b == 'y'"]).configs
    assert [found.places[config] for config in found] == [*range(10)]
    assert Config.of("k", {"a": 0, "b": "x", "c": 0.5}) not in found
    for other in ("l:a=3,b=y,c=0.5", "k:b=y,a=3,c=0.5", "k:a=3,b=y", "k:a=3,b=z,c=0.5", "k"):
        assert Config.parse(other) not in found
    assert len(legal({}, []).configs) == 1
    assert Config("k") in legal({}, []).configs


def test_quarantined_configurations_are_not_candidates(store: Store) -> None:
    quarantine = Quarantine(store, H100, "measured", ORIGIN.source)
    for text in ("saxpy:THREADS=32,EACH=1", "saxpy:THREADS=32,EACH=4", "gone:EACH=1"):
        quarantine.note("", Config.parse(text), Failure("crash", "illegal access"))
    found = tunable().candidates(KernelRunner(), quarantine.barred(), ranked=None)
    assert Config.parse("saxpy:THREADS=32,EACH=1") not in found.configs
    assert len(found.configs) == LEGAL - 1
    assert found.rejected == {"threads": 3, "enough threads": 1, "quarantined": 1}
