"""Draws the pictures of the documents into `docs/pictures`.

    python scripts/draw.py            every picture
    python scripts/draw.py ladder     one by name
    python scripts/draw.py --check    says which are out of date, with status 1

Each is drawn from files of `docs/results` or from the package's arithmetic, and carries a SHA-256
of what it was drawn from. `pip install --group docs` brings matplotlib.
"""

from __future__ import annotations

import argparse
import sys

from pictures import PICTURES
from pictures.picture import FOLDER


def main(arguments: list[str]) -> int:
    names = [picture.name for picture in PICTURES]
    parser = argparse.ArgumentParser(description="Draws the pictures of the documents.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--check", action="store_true", help="draw nothing, name outdated ones")
    options = parser.parse_args(arguments)
    if unknown := sorted({*options.names} - {*names}):
        parser.error(f"no picture {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = [p for p in PICTURES if not options.names or p.name in options.names]
    if options.check:
        stale = [picture.name for picture in chosen if not picture.current()]
        for name in stale:
            print(f"{name}: out of date; `python scripts/draw.py {name}` draws it again")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for picture in chosen:
        picture.path.write_text(picture.svg(), encoding="utf-8")
        print(picture.path.relative_to(FOLDER.parents[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
