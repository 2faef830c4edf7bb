"""Expressions in the parameters as text, such as `block_size_x * tile <= 1024`.

A text is a Python expression of numbers, words, parameters, operators and `FUNCTIONS`, and of
nothing else. It is compiled to a function of a mapping from the parameters to their values.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError

Column = NDArray[Any]

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

    `name` says in messages where the text stands. `reads` are the parameters that it names, and
    `parts` the expressions that `and` joins.

    Raises:
        UsageError: for another text than an expression in the parameters.
    """

    def __init__(self, name: str, text: str, parameters: Collection[str]) -> None:
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
            reader = _Reader(name, text, parameters)
            body = reader.visit(ast.parse(text.strip(), mode="eval").body)
            function = ast.parse("lambda values: 0", mode="eval")
            function.body.body = body  # type: ignore[attr-defined]
            code = compile(ast.fix_missing_locations(function), text, "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            c_like = any(word in text for word in ("&&", "||", "!"))
            raise UsageError(
                f"{name} is {text!r}, which is not a Python expression: {error}; give one in the "
                "parameters" + (", with and, or, not for &&, ||, !" if c_like else "")
            ) from error
        self.text, self.reads, self.parts = text, tuple(reader.reads), [self]
        if isinstance(self._tree, ast.BoolOp) and isinstance(self._tree.op, ast.And):
            parts = map(ast.unparse, self._tree.values)
            self.parts = [Expression(name, part, parameters) for part in parts]
        self._function = eval(code, {"__builtins__": {}, **FUNCTIONS})

    def __call__(self, values: Any) -> Any:
        return self._function(values)

    def vectorised(self, columns: Mapping[str, Column]) -> Column | None:
        """Whether each row of values fulfils it; None where NumPy could differ from Python."""
        try:
            return _truth(_column(self._tree, columns))
        except _InexactError:
            return None


class _Reader(ast.NodeTransformer):
    """Checks an expression, and replaces each parameter by a look-up in `values`."""

    def __init__(self, name: str, text: str, parameters: Collection[str]) -> None:
        self._name, self._text, self._parameters = name, text, parameters
        self.reads: dict[str, None] = {}

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, _ALLOWED):
            return self.generic_visit(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
            return node
        if isinstance(node, ast.Name):
            if node.id not in self._parameters:
                raise UsageError(
                    f"{self._name} names {node.id!r}, which is not a parameter; there are "
                    f"{', '.join(self._parameters) or 'none'}"
                )
            self.reads[node.id] = None
            return ast.Subscript(ast.Name("values", ast.Load()), ast.Constant(node.id), ast.Load())
        if (
            isinstance(node, ast.Call)
            and not node.keywords
            and getattr(node.func, "id", "") in FUNCTIONS
        ):
            node.args = [self.visit(argument) for argument in node.args]
            return node
        part = ast.get_source_segment(self._text.strip(), node) or self._text
        raise UsageError(
            f"{self._name} has {part!r}; give an expression of numbers, parameters, operators and "
            f"{', '.join(FUNCTIONS)}"
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


class _InexactError(Exception):
    """NumPy could give another result than Python."""


# Whole numbers below it are exact in float64, and their sums in int64.
_EXACT = 2**53

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod},
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    **{ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne},
}


def _column(node: ast.expr, columns: Mapping[str, Column]) -> Column:
    """The values of an expression, a row each, or one for all."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return np.asarray(value)
        case ast.Name(id=name):
            return columns[name]
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
            return _computed(op, _column(left, columns), _column(right, columns))
        case ast.Compare(left, ops, rights) if all(type(op) in _COMPARISONS for op in ops):
            parts = [_column(part, columns) for part in (left, *rights)]
            if len({part.dtype.kind for part in parts}) > 1:
                any(map(_size, parts))
            pairs = zip(ops, parts, parts[1:], strict=False)
            results = [_COMPARISONS[type(op)](first, second) for op, first, second in pairs]
            return np.asarray(reduce(np.logical_and, results))
        case ast.BoolOp(op, parts):
            # A word such as `a or b` stands for one of both, unless both are true or false.
            truths = [_column(part, columns) for part in parts]
            if any(part.dtype.kind != "b" for part in truths):
                raise _InexactError
            combine = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return np.asarray(reduce(combine, truths))
        case ast.UnaryOp(ast.Not(), inner):
            return ~_truth(_column(inner, columns))
    raise _InexactError


def _computed(op: ast.operator, left: Column, right: Column) -> Column:
    """The result of an operation on numbers that stay exact."""
    largest, whole = _size(left) * _size(right), left.dtype.kind + right.dtype.kind == "ii"
    divides = isinstance(op, ast.Div | ast.FloorDiv | ast.Mod)
    if (isinstance(op, ast.Mult) and largest >= _EXACT) or (divides and not right.all()):
        raise _InexactError
    if isinstance(op, ast.FloorDiv | ast.Mod) and not whole:
        raise _InexactError
    return np.asarray(_ARITHMETIC[type(op)](left, right))


def _size(column: Column) -> int | float:
    """The largest magnitude, if it is exact."""
    if column.dtype.kind not in "if":
        raise _InexactError
    size: int | float = max(-column.min(), column.max()).item()
    if not size < _EXACT:
        raise _InexactError
    return size


def _truth(column: Column) -> Column:
    if column.dtype.kind not in "bif":
        raise _InexactError
    return column.astype(bool)
