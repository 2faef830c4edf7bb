"""The compiler options that a user may give for a kernel.

An option is refused where it would silently win over what the package sets itself, or where it
reads or writes files that nobody sees. The compiler refuses options that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from autotune.errors import UsageError

_HOST_LEVEL = re.compile(r"-O[0-3]")
"""Options of nvcc for its host compiler; NVRTC always optimises and refuses them."""
# `-DTILE=32`, `-D TILE=32` and `-I/folder`; `--define-macro=TILE=32` and `-arch=sm_80`.
_SHORT = re.compile(r"-([DUI])[\s=]*(.*)", re.DOTALL)
_LONG = re.compile(r"--?([A-Za-z][\w-]*)[\s=]*(.*)", re.DOTALL)
_MACRO = re.compile(r"D|define-macro|U|undefine-macro")
_NESTED = re.compile(r"Xptxas|ptxas-options|Xcompiler|compiler-options")
"""Options whose value is a list of options of another tool."""

_REMEDIES = {
    re.compile(names): remedy
    for names, remedy in (
        (
            "I|include-path|isystem|system-include",
            "give folders of headers as `include` of `Compilation`, so that changes are noticed",
        ),
        ("include|pre-include", "write the #include in the source"),
        (
            "arch|code|gencode|generate-code|gpu-(architecture|code|name)",
            "kernels are compiled for `device`; name another there",
        ),
        (
            "o|odir|output-.*|objtemp|objdir-as-tempdir|keep(-dir)?|save-temps|M+[A-Z]?|.*dependenc.*|"
            "time|.*time-trace|(create-|use-)?pch(-dir)?",
            "it reads or writes files beside the kernel; leave it out",
        ),
        (
            "optf|options-file|ccbin|compiler-bindir|run|clean-targets",
            "it is about other files than the kernel; leave it out",
        ),
    )
}


def check_options(options: Sequence[str], macros: Collection[str]) -> tuple[str, ...]:
    """The options as the compiler gets them; those of a host compiler are left out.

    Args:
        options: options of NVRTC or nvcc, each with its value in one text.
        macros: the tuned parameters, which no option may define.

    Raises:
        UsageError: for what is not a list of options, and for an option that is refused.
    """
    if isinstance(options, str) or not hasattr(options, "__iter__"):
        raise _no_options(options)
    for option in options:
        if not isinstance(option, str) or not option.startswith("-"):
            raise _no_options(options)
        for name, value in _named(option):
            macro = re.split(r"\W", value, maxsplit=1)[0]
            if _MACRO.fullmatch(name) and macro in macros:
                raise UsageError(
                    f"options has {option!r}, and {macro} is tuned; give its values in `parameters`"
                )
            for names, remedy in _REMEDIES.items():
                if names.fullmatch(name):
                    raise UsageError(f"options has {option!r}: {remedy}")
    return tuple(option for option in options if not _HOST_LEVEL.fullmatch(option))


def _named(option: str) -> Iterator[tuple[str, str]]:
    """The name and the value of an option, and of those in its value."""
    if match := _SHORT.fullmatch(option) or _LONG.fullmatch(option):
        name, value = match.groups()
        yield name, value
        for inner in re.split(r"[,\s]+", value) if _NESTED.fullmatch(name) else ():
            yield from _named(inner)


def _no_options(options: object) -> UsageError:
    return UsageError(
        f"options is {options!r}; give a list of the compiler's options, such as "
        "['--use_fast_math'], each with its value in one text"
    )
