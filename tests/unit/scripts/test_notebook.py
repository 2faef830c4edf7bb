"""The notebook of the examples: it runs without a GPU and prints what it was saved with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from support.paths import ROOT

SAVED = ROOT / "examples" / "occupancy.ipynb"


def printed(notebook: Any) -> list[str]:
    """The text of each cell, and the kinds of pictures that it shows."""
    cells = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        texts = [output.text for output in outputs if output.output_type == "stream"]
        kinds = [k for output in outputs for k in output.get("data", {}) if k.startswith("image/")]
        cells.append("".join([*texts, *kinds]))
    return cells


@pytest.fixture(scope="module")
def saved() -> Any:
    return nbformat.read(SAVED, as_version=4)


def test_notebook_is_valid(saved: Any) -> None:
    nbformat.validate(saved)


def test_notebook_prints_what_it_was_saved_with(
    saved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(SAVED, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []

    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()

    assert printed(notebook) == printed(saved)
    assert sum("image/png" in text for text in printed(saved)) == 2
