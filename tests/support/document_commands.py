"""The commands and programs that the documents print, in fenced blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from support.paths import ROOT

# In running text, and in blocks that are set off by spaces.
INLINE = re.compile(r"`(?:\$ )?(autotune [a-z][^`\n]*)`|^    (?:\$ )?(autotune [a-z].*)$", re.M)
FENCE = re.compile(
    r"(?P<before>^[^\n]+\n\n)?^```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^```$", re.M | re.S
)
ASSIGNMENT = re.compile(r"\w+=\S*$")
# They make the environment that the commands run in.
PREPARATION = ("pip ", "python3 -m venv ", "git ", "make ", "cd ")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document.

    Attributes:
        document: its path below the root.
        line: the line where it begins.
        language: `sh` or `python`, among others.
        before: the line of text above it, such as `On a GPU:`; empty if none is.
        text: its lines.
    """

    document: str
    line: int
    language: str
    before: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def needs_gpu(self) -> bool:
        """Whether the line above says that it runs on a GPU. GitHub and PyPI show no titles."""
        return bool(re.search(r"\bon a GPU:$", self.before, re.I))

    @property
    def runnable(self) -> str:
        """The text without the lines that prepare an environment."""
        lines = self.text.splitlines()
        return "\n".join(line for line in lines if not line.startswith(PREPARATION))


def blocks(documents: Iterable[Path], *languages: str) -> list[Block]:
    """The blocks of the documents in these languages."""
    found = []
    for document in documents:
        text = document.read_text("utf-8")
        name = str(document.relative_to(ROOT))
        for match in FENCE.finditer(text):
            if match["language"] in languages:
                line = text.count("\n", 0, match.start("language")) + 1
                before = (match["before"] or "").strip()
                found.append(Block(name, line, match["language"], before, match["text"]))
    return found


def inline(documents: Iterable[Path]) -> list[Block]:
    """The commands outside fenced blocks, each as a block."""
    found = []
    for document in documents:
        text = document.read_text("utf-8")
        name = str(document.relative_to(ROOT))
        for match in INLINE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(name, line, "sh", "", match[1] or match[2]))
    return found


def autotune_commands(block: Block) -> list[list[str]]:
    """The words behind `autotune` of each such command."""
    commands = []
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.partition(" > ")[0], comments=True)
        while words and ASSIGNMENT.match(words[0]):
            words = words[1:]
        if words[:1] == ["autotune"]:
            commands.append(words[1:])
    return commands
