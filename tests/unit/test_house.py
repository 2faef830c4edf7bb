"""The rules of the house: unique class names, nouns for names, short modules and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import TypeAlias

import pytest
from support.paths import ROOT, TESTS

from autotune.measure.objective import OBJECTIVES

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

PRONOUNS = {
    *("one", "other", "others", "some", "given", "known", "held"),
    *("there", "taken", "who", "what", "found"),
}
MODULE_LINES = 600
FUNCTION_LINES = 50
TEST_NAME_LENGTH = 60


@cache
def texts() -> dict[str, str]:
    """The modules of the package by their paths in the repository."""
    paths = sorted((ROOT / "autotune").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


@cache
def nodes() -> tuple[tuple[str, ast.AST], ...]:
    """All syntax nodes of the package with their modules."""
    return tuple(
        (path, node) for path, text in texts().items() for node in ast.walk(ast.parse(text))
    )


def lines(node: Function | ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def body_lines(function: Function) -> int:
    """Lines of a function without its docstring."""
    documented = ast.get_docstring(function, clean=False) is not None
    return lines(function) - (lines(function.body[0]) if documented else 0)


def bound_names(node: ast.AST) -> Iterator[str]:
    """Names that a node binds: variables, arguments, aliases of imports."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield node.asname or ""
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        yield node.name or ""


def matches(pattern: str) -> list[str]:
    """Lines of the package that contain a pattern."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    assert {name: lines for name, lines in places.items() if len(lines) > 1} == {}


def test_no_module_hides_a_function_of_its_package() -> None:
    """Importing a submodule binds its name in the package, over a function of another module."""
    hidden = [
        f"{path}: {alias.name}"
        for path, node in nodes()
        if path.endswith("__init__.py") and isinstance(node, ast.ImportFrom)
        if (node.module or "").startswith("autotune")
        for alias in node.names
        if (ROOT / path).with_name(f"{alias.name}.py").exists()
        and (node.module or "").rpartition(".")[2] not in (alias.name, (ROOT / path).parent.name)
    ]
    assert hidden == []


def test_variables_and_arguments_are_nouns() -> None:
    pronouns = [
        f"{path}:{getattr(node, 'lineno', '')}: {name}"
        for path, node in nodes()
        for name in bound_names(node)
        if name.strip("_") in PRONOUNS
    ]
    assert pronouns == []


def test_modules_are_short() -> None:
    lengths = {path: len(text.splitlines()) for path, text in texts().items()}
    assert {path: length for path, length in lengths.items() if length > MODULE_LINES} == {}


def test_functions_are_short() -> None:
    lengths = {
        f"{path}:{node.lineno} {node.name}": body_lines(node)
        for path, node in nodes()
        if isinstance(node, FUNCTIONS)
    }
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES} == {}


def test_divisions_round_up_by_ceil_div() -> None:
    assert matches(r"-\(-") == []


def test_parameters_are_not_read_by_text() -> None:
    assert matches(r"\bp\[[\"']") == []


def test_objectives_are_not_compared_by_their_words() -> None:
    words = "|".join(OBJECTIVES)
    after = rf"(==|!=|\bin\b|\bcase\b|\bis( not)?) *\(?[\"']({words})[\"']"
    before = rf"[\"']({words})[\"'] *(==|!=|if )"
    assert matches(f"{after}|{before}") == []


def test_test_names_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text("utf-8"), re.M)
        if len(name) > TEST_NAME_LENGTH
    ]
    assert long == []


def test_only_the_tests_for_a_gpu_are_left_out(request: pytest.FixtureRequest) -> None:
    left_out = [
        folder
        for folder in {path.parent for path in TESTS.rglob("test_*.py")}
        if request.config.hook.pytest_ignore_collect(collection_path=folder, config=request.config)
    ]
    assert left_out == [TESTS / "gpu"]
