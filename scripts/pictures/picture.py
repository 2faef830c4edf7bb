"""A picture: the values that it draws, the function that draws them, and its file."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from pictures import style

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
FOLDER = ROOT / "docs" / "pictures"
STAMP = re.compile(r"drawn from ([0-9a-f]{64})")


@dataclass(frozen=True)
class Picture:
    """A picture of the documents.

    Attributes:
        name: the file's name without `.svg`.
        title: what it shows, for readers who do not see it.
        values: returns everything that is drawn, as JSON can hold it.
        draw: draws these values.
    """

    name: str
    title: str
    values: Callable[[], Any]
    draw: Callable[[Any], Figure]

    @property
    def path(self) -> Path:
        """The file in `docs/pictures`."""
        return FOLDER / f"{self.name}.svg"

    def stamp(self, values: Any) -> str:
        """SHA-256 of the values, of the title and of the code that draws."""
        code = inspect.getsource(sys.modules[self.draw.__module__]) + inspect.getsource(style)
        text = json.dumps([self.title, values, code], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def current(self) -> bool:
        """Whether the file was drawn from today's values by today's code."""
        try:
            found = STAMP.search(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return False
        return found is not None and found[1] == self.stamp(self.values())

    def svg(self) -> str:
        """The picture as SVG; the same values give the same text."""
        values = self.values()
        settings: dict[Any, Any] = {**style.SETTINGS, "svg.hashsalt": self.name}
        about = {"Title": self.title, "Description": f"drawn from {self.stamp(values)}"}
        target = io.BytesIO()
        with mpl.rc_context(settings):
            figure = self.draw(values)
            figure.savefig(
                target, format="svg", metadata={**about, "Date": None, "Creator": "scripts/draw.py"}
            )
        lines = target.getvalue().decode().splitlines()
        return "\n".join(line.rstrip() for line in lines) + "\n"


def result(name: str) -> Any:
    """A file of `docs/results`."""
    return json.loads((RESULTS / name).read_text("utf-8"))
