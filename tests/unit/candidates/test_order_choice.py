"""The choice of the order of summation of a range."""

from __future__ import annotations

import pytest

from autotune.candidates import order_choice
from autotune.candidates.legality import is_legal
from autotune.candidates.order_choice import probes, promising_orders
from autotune.device import find
from autotune.problem.span import Span

H100 = find("h100")


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
