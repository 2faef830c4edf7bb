"""Expressions in the parameters as text, such as `block_size_x * tile <= 1024`.

A text is a Python expression of numbers, words, parameters, operators and `FUNCTIONS`, and of
nothing else.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from autotune.errors import UsageError

FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (abs, bool, float, int, max, min, round, *(math.ceil, math.floor, math.log2))
}

_ALLOWED = (
    *(ast.BoolOp, ast.boolop, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Compare),
    *(ast.cmpop, ast.IfExp, ast.Tuple, ast.List, ast.Load),
)


class Expression:
    """A text in the parameters, as a function of a mapping from their names to their values.

    Attributes:
        reads: the parameters that it names.
        function: a function of their values.
        parts: the expressions that `and` joins.

    Args:
        name: says in messages where the text stands.
        text: the text.
        parameters: the names of the parameters.

    Raises:
        UsageError: for another text than an expression in the parameters.
    """

    def __init__(self, name: str, text: str, parameters: Collection[str]) -> None:
        try:
            body = ast.parse(text.strip(), mode="eval").body
            reader = _Reader(name, text, parameters)
            reader.visit(body)
            self.reads = tuple(reader.reads)
            function: Any = ast.parse(f"lambda {', '.join(self.reads)}: 0", mode="eval")
            function.body.body = body
            code = compile(ast.fix_missing_locations(function), text, "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            c_like = any(word in text for word in ("&&", "||", "!"))
            raise UsageError(
                f"{name} is {text!r}, which is not a Python expression: {error}; give one in the "
                "parameters" + (", with and, or, not for &&, ||, !" if c_like else "")
            ) from error
        self.function = eval(code, {"__builtins__": {}, **FUNCTIONS})
        self.parts = [self]
        if isinstance(body, ast.BoolOp) and isinstance(body.op, ast.And):
            self.parts = [Expression(name, ast.unparse(part), parameters) for part in body.values]

    def __call__(self, values: Any) -> Any:
        return self.function(*[values[name] for name in self.reads])


class _Reader(ast.NodeVisitor):
    """Checks an expression, and notes which parameters it reads."""

    def __init__(self, name: str, text: str, parameters: Collection[str]) -> None:
        self._name, self._text, self._parameters = name, text, parameters
        self.reads: dict[str, None] = {}

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.Constant(value=int() | float() | str()):
                pass
            case ast.Name(id=name) if name in self._parameters:
                self.reads[name] = None
            case ast.Name(id=name):
                raise UsageError(
                    f"{self._name} names {name!r}, which is not a parameter; there are "
                    f"{', '.join(self._parameters) or 'none'}"
                )
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
                for argument in node.args:
                    self.visit(argument)
            case _ if isinstance(node, _ALLOWED):
                self.generic_visit(node)
            case _:
                part = ast.get_source_segment(self._text.strip(), node) or self._text
                raise UsageError(
                    f"{self._name} has {part!r}; give an expression of numbers, parameters, "
                    f"operators and {', '.join(FUNCTIONS)}"
                )


def settled(name: str, setting: Any, parameters: Collection[str]) -> Any:
    """A setting in which functions of the parameters stand for texts.

    Raises:
        UsageError: for another text than an expression in the parameters.
    """
    if isinstance(setting, str):
        return Expression(name, setting, parameters)
    if isinstance(setting, Sequence) and any(isinstance(part, str) for part in setting):
        parts = [settled(name, part, parameters) for part in setting]
        return lambda values: tuple(part(values) if callable(part) else part for part in parts)
    return setting
