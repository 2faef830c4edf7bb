"""Options: what the command line makes of their texts, and what that imports."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import pytest
import typer

from autotune.cli.options import VerbCommand

SCRIPT = """
import sys
from autotune import cli
try: cli.main(["tune", "64x64x64", "--sampler", "none"])
except SystemExit: pass
print("pydantic" in sys.modules)
"""


def parsed(*arguments: str) -> dict[str, object]:
    """The values that a verb receives."""
    values: dict[str, object] = {}
    app = typer.Typer(add_completion=False)

    @app.command(cls=VerbCommand)
    def verb(
        shapes: list[str] | None = None,
        name: str | None = None,
        trials: int | None = None,
        seed: int = 0,
        loss: float = 0.05,
        quick: Annotated[bool, typer.Option("--quick")] = False,
    ) -> None:
        values.update(shapes=shapes, name=name, trials=trials, seed=seed, loss=loss, quick=quick)

    app(arguments, standalone_mode=False)
    return values


def test_texts_of_options_become_their_types() -> None:
    assert parsed() == {
        **{"shapes": None, "name": None, "trials": None},
        **{"seed": 0, "loss": 0.05, "quick": False},
    }
    typed = parsed(
        *("--name", "x", "--trials", "3", "--seed", "7", "--loss", "1"),
        *("--quick", "--shapes", "1x2x3", "--shapes", "4x5x6"),
    )
    assert typed == {
        **{"shapes": ["1x2x3", "4x5x6"], "name": "x", "trials": 3},
        **{"seed": 7, "loss": 1.0, "quick": True},
    }


def test_text_of_another_type_is_refused() -> None:
    with pytest.raises(Exception, match="integer"):
        parsed("--trials", "some")


def test_options_of_a_verb_import_no_validator() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"
