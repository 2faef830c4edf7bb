"""Configurations of a prescribed order of summation, and the choice of the order of a range."""

from __future__ import annotations

import pytest

from autotune.candidates import order_choice, space
from autotune.candidates.order_choice import probes, promising_orders
from autotune.candidates.ordered import order_of
from autotune.candidates.recorded import is_legal
from autotune.device import find
from autotune.problem import Problem
from autotune.problem.span import Span

H100 = find("h100")
LARGE = Problem(2048, 4096, 4096, "bf16", "nt")
SPLIT, WHOLE = "wgmma bf16 swap=1 shared +(2*2048)", "wgmma bf16 swap=1 shared 4096"


@pytest.mark.parametrize("order", [SPLIT, WHOLE, "mma bf16 swap=0 2/32(4096)"])
def test_prescribed_order_is_that_of_every_configuration(order: str) -> None:
    legal = space.feasible(LARGE, H100, order.partition(" ")[0], order)
    assert {str(order_of(config, LARGE)) for config in legal.configs} == {order}


def test_order_may_split_k_where_it_does_not_pay() -> None:
    usual = space.feasible(LARGE, H100, "wgmma").configs
    assert SPLIT not in {str(order_of(config, LARGE)) for config in usual}
    split = space.feasible(LARGE, H100, "wgmma", SPLIT).configs[0]
    assert is_legal(split, LARGE, H100, SPLIT)
    assert not is_legal(split, LARGE, H100, WHOLE)


def test_probes_are_even_in_their_logarithm() -> None:
    assert probes(Span.parse("1..8192x512x1024")) == (1, 20, 406, 8192)
    assert probes(Span.parse("3..4x512x1024")) == (3, 4)


def test_promising_orders_serve_every_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_choice, "PROBES", 2)
    monkeypatch.setattr(order_choice, "LEADERS", 1)
    span = Span.parse("8..16x128x256:bf16:nt")
    outlooks = promising_orders(span, H100, 2)
    assert [outlook.factor for outlook in outlooks] == sorted(each.factor for each in outlooks)
    for outlook in outlooks:
        assert tuple(outlook.best) == probes(span)
        for size, configs in outlook.best.items():
            problem = span.at(size)
            assert 1 <= len(configs) <= 2
            assert all(is_legal(config, problem, H100, outlook.order) for config in configs)
