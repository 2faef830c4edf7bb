"""Whether the source of a user kernel stands alone: compiling it reads and writes no other file.

A record of a stranger brings source code and options of the compiler. NVRTC has options that write
files (`--time=FILE`) and that read them (`--pre-include=FILE`), and it opens any header by an
absolute path or one with `..`. So a record only holds sources whose options are on a list and whose
headers are their own, or are searched for in CUDA's folders by a relative name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from posixpath import dirname, join, normpath

from autotune.files.decoding import shown

# NVRTC's options that neither take a path nor choose what is compiled for whom.
_OPTION = re.compile(
    r"--?(use_fast_math|lineinfo|generate-line-info|G|device-debug|dopt=(on|off)|restrict"
    r"|extra-device-vectorization|default-device|device-as-default-execution-space|device-int128"
    r"|w|disable-warnings|diag-(suppress|warn|error)=\d+(,\d+)*"
    r"|(expt-)?relaxed-constexpr|(expt-)?extended-lambda"
    r"|(ftz|fmad|prec-(div|sqrt))=(true|false)|maxrregcount=\d+|std=(c|gnu)\+\+\d[0-9a-z]"
    r"|O[0-3]|(ptxas-options=|Xptxas=)-?-(v|O[0-3]|dlcm=c[agsv]|dscm=(wb|c[gst])|warn-spills)"
    r"|(D|define-macro=)[A-Za-z_]\w*(=[\w:<>*&.+\- ]*)?|(U|undefine-macro=)[A-Za-z_]\w*)"
)
# Wherever it stands, also in a comment: what is one to us may be code to the compiler.
_DIRECTIVE = re.compile(
    r"(?:\#|%:)[^\S\n]*(?:/\*|(?:include\w*|import|embed)\b[^\S\n]*)"
    r"|(?P<defined>(?:ifn?def|defined)[\s(]*)?\b__has_(?:include\w*|embed)\b\s*\(?\s*"
)
_HEADER = re.compile(r'"([^"\n]+)"|<([^>\n]+)>')
_TRIGRAPHS = {"??=": "#", "??/": "\\"}
_SPLICE = re.compile(r"\\[ \t]*\r?\n")


def fault(files: Mapping[str, str], folders: Sequence[str], options: Sequence[str]) -> str | None:
    """Why a source does not stand alone; None if it does.

    Args:
        files: the text of each file by its path.
        folders: the folders among them that are searched for headers.
        options: the options of the compiler.
    """
    for option in options:
        if not _OPTION.fullmatch(option):
            return f"option {shown(option)} of the compiler is not one that a record may have"
    for path, text in files.items():
        for header in _headers(text):
            if header is None or not _inside(header, (dirname(path), *folders), files):
                named = "what it does not spell out" if header is None else shown(header)
                return f"{path} includes {named}; a record's source has its own headers and CUDA's"
    return None


def _headers(text: str) -> list[str | None]:
    """The headers that a text includes or asks about; None for one that it does not spell out."""
    for trigraph, character in _TRIGRAPHS.items():
        text = text.replace(trigraph, character)
    text = _SPLICE.sub("", text)
    headers: list[str | None] = []
    for directive in _DIRECTIVE.finditer(text):
        if not directive["defined"]:
            named = _HEADER.match(text, directive.end())
            headers.append(named and (named[1] or named[2]))
    return headers


def _inside(header: str, places: Sequence[str], files: Collection[str]) -> bool:
    """Whether a header can only be one of the files, or one of CUDA's.

    The compiler takes the first of `places` that has it, so none may lead out of the source. CUDA's
    folders follow; a path with `..` must not reach them.
    """
    if header.startswith("/") or "\\" in header:
        return False
    paths = [normpath(join(place, header)) for place in places]
    if any(path.startswith("..") for path in paths):
        return False
    return ".." not in header.split("/") or any(path in files for path in paths)
