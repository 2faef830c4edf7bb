"""Impossible values in every kind of file: refused with one line, whatever the checksum says."""

from __future__ import annotations

import pytest
from support.impossible_values import KINDS, Mutation, mutations


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def refusals(kind: str) -> list[tuple[Mutation, str | None]]:
    """Each changed file with the reason for which it is refused; None if it is accepted."""
    changed = [
        mutation
        for number, mutation in enumerate(mutations(KINDS[kind]))
        # Texts nest too deeply wherever they do, and each takes 0.05 s.
        if mutation.value != "deep list" or number < 20
    ]
    return [(mutation, _refusal(kind, mutation.data)) for mutation in changed]


def _refusal(kind: str, data: bytes) -> str | None:
    try:
        KINDS[kind].read(data)
    except ValueError as error:
        return str(error)
    return None


def test_unchanged_sample_is_accepted(kind: str) -> None:
    assert _refusal(kind, KINDS[kind].written(KINDS[kind].document)) is None


def test_impossible_values_are_refused(refusals: list[tuple[Mutation, str | None]]) -> None:
    accepted = [
        str(mutation) for mutation, why in refusals if why is None and not mutation.possible
    ]
    assert accepted == []


def test_possible_values_are_accepted(refusals: list[tuple[Mutation, str | None]]) -> None:
    refused = {str(mutation): why for mutation, why in refusals if why and mutation.possible}
    assert refused == {}


def test_refusal_is_one_short_line(refusals: list[tuple[Mutation, str | None]]) -> None:
    reasons = [why for _, why in refusals if why is not None]
    assert [why[:100] for why in reasons if "\n" in why or len(why) > 500] == []
