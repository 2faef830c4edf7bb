"""The pictures of the documents: drawn from what they show, and used."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import draw
import pytest
from draw import PICTURES
from pictures import FOLDER, Picture
from support.paths import ROOT

by_name = pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)


@by_name
def test_picture_is_drawn_from_its_values(picture: Picture) -> None:
    assert picture.current(), f"run `python scripts/draw/draw.py {picture.name}`"


def test_every_file_is_a_picture() -> None:
    assert {path.name for path in FOLDER.glob("*.svg")} == {
        picture.path.name for picture in PICTURES
    }


def test_same_values_give_the_same_file() -> None:
    picture = PICTURES[0]

    assert picture.svg() == picture.svg()


def test_picture_of_other_values_is_out_of_date() -> None:
    picture = PICTURES[0]

    def other() -> Any:
        return picture.values()[1:]

    assert not replace(picture, values=other).current()


def test_picture_with_another_title_is_out_of_date() -> None:
    assert not replace(PICTURES[0], title="new").current()


def test_missing_picture_is_out_of_date() -> None:
    assert not replace(PICTURES[0], name="missing").current()


@by_name
def test_picture_says_what_it_shows(picture: Picture) -> None:
    root = ElementTree.fromstring(picture.path.read_text("utf-8"))

    assert root.findtext("{http://www.w3.org/2000/svg}title") == picture.title


@by_name
def test_picture_is_shown_with_an_alternative_text(picture: Picture) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    image = re.compile(rf"!\[([^\]]*)\]\([^)]*\b{picture.path.name}\)")
    texts = [text for page in pages for text in image.findall(page.read_text("utf-8"))]

    assert texts
    assert all(len(text) > 20 for text in texts)


def test_check_names_what_is_out_of_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(draw, "PICTURES", (replace(PICTURES[0], title="new"), PICTURES[1]))

    status = draw.main(["--check"])

    assert status == 1
    assert (
        capsys.readouterr().out
        == "suite: out of date; `python scripts/draw/draw.py suite` draws it again\n"
    )
