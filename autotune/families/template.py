"""Instances of kernel templates: a CUDA source, a kernel in it and its template arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from autotune.families.macros import checks, definitions

PARAMS = "Params"
"""The class that holds the template arguments of a kernel."""


class Enumerator(NamedTuple):
    """A value of an `enum class` of the CUDA sources, such as `Store::TMA`, and its number."""

    type: str
    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.type}::{self.name}"


Constant: TypeAlias = int | float | str | Enumerator
"""A template argument; a `bool` is an integer. Only user kernels have floats and words."""


@dataclass(frozen=True)
class Template:
    """A kernel template of a CUDA source with a value for each template parameter.

    Attributes:
        source: the file.
        kernel: the template's name there.
        arguments: each parameter's name in the source and its value, in the source's order.
        specific: whether it uses instructions that only one architecture has, so that it is
            compiled for `sm_90a` instead of `sm_90`.
        form: the C++ expression of the instance, with `{name}` for the values; None takes the
            kernel with all arguments in their order.
        named: whether the kernel takes all arguments as members of one class, `Params`, which
            `declaration` declares; else it takes integers in the order of the arguments.
        macros: macros that are defined before the source, with their values.
        options: further options of the compiler.
    """

    source: str
    kernel: str
    arguments: tuple[tuple[str, Constant], ...] = ()
    specific: bool = False
    form: str | None = None
    named: bool = False
    macros: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()

    @property
    def expression(self) -> str:
        """The C++ name expression of the instance, such as `tiled<16>` or `simt<Params>`."""
        if self.form is not None:
            return self.form.format(**dict(self.arguments))
        if self.named:
            return f"{self.kernel}<{PARAMS}>"
        values = ", ".join(map(str, self.numbers.values()))
        return f"{self.kernel}<{values}>" if values else self.kernel

    @property
    def declaration(self) -> str:
        """The text that follows the source: the checks of the macros, or the `struct Params` of
        `named` arguments."""
        if not self.named:
            return checks(self.macros)
        members = (
            f"    static constexpr {_type(value)} {name} = {_text(value)};\n"
            for name, value in self.arguments
        )
        return f"struct {PARAMS} {{\n{''.join(members)}}};\n"

    @property
    def preamble(self) -> str:
        """The definitions of the macros, which precede the source; empty without macros."""
        if not self.macros:
            return ""
        return f'{definitions(self.macros)}#line 1 "{self.source}"\n'

    @property
    def numbers(self) -> dict[str, int]:
        """The arguments as integers: an enumerator as its number."""
        return {
            name: value.number if isinstance(value, Enumerator) else int(value)
            for name, value in self.arguments
        }

    @property
    def values(self) -> dict[str, int | float | str]:
        """The arguments as JSON has them: an enumerator as its text, such as `Reduction::FUSED`."""
        return {
            name: str(value) if isinstance(value, Enumerator) else value
            for name, value in self.arguments
        }

    @property
    def label(self) -> str:
        """The instance in a message, such as `simt<BM=128, BN=64>`; no two have the same."""
        if self.macros:
            values = ", ".join(f"{name}={value}" for name, value in self.macros)
            return f"{self.expression} with {values}"
        if not self.named:
            return self.expression
        values = ", ".join(f"{name}={_text(value)}" for name, value in self.arguments)
        return f"{self.kernel}<{values}>"


def _type(value: Constant) -> str:
    if isinstance(value, Enumerator):
        return value.type
    return "bool" if isinstance(value, bool) else "int"


def _text(value: Constant) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
