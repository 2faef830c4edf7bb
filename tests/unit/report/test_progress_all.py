"""The progress of searches that share one budget."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from autotune.problem import Problem
from autotune.report import progress_all
from autotune.report.progress_all import SharedLive, observing_all
from autotune.runners.objective import HOT
from autotune.tuning.trials import Progress

FIRST, SECOND = Problem(64, 64, 64), Problem(128, 128, 128)


def test_one_line_names_the_search_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress_all, "monotonic", lambda: now[0])
    live, drawn = SharedLive(3, 60.0, HOT), list[float]()
    live.drawn = lambda: drawn.append(live.share)
    assert live.text == "0 of 3 shapes searched"
    for problem, place in ((FIRST, 1), (SECOND, 2), (FIRST, 2)):
        observer = live.observed(problem, 20.0)
        now[0] += 15.0
        observer.started(10, {}, Progress(4, 1, None, 0.0))
        assert live.text.startswith(f"{place}/3 {problem}: 4 trials, best none yet, 1 failed")
    assert drawn == [0.25, 0.5, 0.75]
    live.finish()
    assert live.text == "2 of 3 shapes searched"


@pytest.mark.parametrize("terminal", [False, True])
def test_bar_on_a_terminal_and_lines_elsewhere(terminal: bool) -> None:
    console = Console(file=StringIO(), force_terminal=terminal, width=80)
    with observing_all(2, 60.0, console, plain=False, objective=HOT) as observed:
        for problem in (FIRST, SECOND):
            observed(problem, 30.0).started(1234, {}, Progress(0, 0, None, 0.0))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    lines = [line for line in text.splitlines() if line.startswith("tuning ")]
    expected = [] if terminal else [f"tuning {FIRST} for 30.0 s", f"tuning {SECOND} for 30.0 s"]
    assert lines == expected
    assert ("2/2 " in text) == terminal
