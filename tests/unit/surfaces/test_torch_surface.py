"""Schemas of the operators `torch.ops.autotune.*`.

Without PyTorch a stand-in receives what is defined, so that the schemas are held there too.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from support import surfaces
from support.paths import import_path

SNAPSHOT = "torch-operators.txt"
INSTALLED = importlib.util.find_spec("torch") is not None
STAND_IN = """
import importlib.machinery, sys, types

class Anything(type):
    def __getattr__(cls, name):
        return cls
    def __call__(cls, *arguments, **keywords):
        return cls

class Value(metaclass=Anything):
    pass

class Library:
    def __init__(self, namespace, kind):
        self.namespace = namespace
    def define(self, schema):
        print(f"{self.namespace}::{schema}")
    def impl(self, *arguments):
        pass

class Module(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        return Library if name == "Library" else Value

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec):
        return Module(spec.name)
    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
import torch.library
import autotune.torch
"""
"""Imports `autotune.torch` beside a PyTorch whose every name is a class, and prints definitions."""


def defined() -> list[str]:
    """The schemas that importing `autotune.torch` defines on a stand-in for PyTorch."""
    ended = subprocess.run(
        [sys.executable, "-c", STAND_IN],
        env={"PYTHONPATH": import_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return sorted(ended.stdout.splitlines())


def test_definitions_keep_their_schemas() -> None:
    surfaces.hold(SNAPSHOT, defined())


@pytest.mark.skipif(not INSTALLED, reason="PyTorch is not installed")
def test_operators_have_the_held_schemas() -> None:
    import torch

    import autotune.torch  # noqa: F401 - it registers them

    held = {str(torch._C.parse_schema(line)) for line in surfaces.read(SNAPSHOT)}
    every = torch._C._dispatch_get_all_op_names()
    names = [name.partition("::")[2] for name in every if name.startswith("autotune::")]
    assert {str(getattr(torch.ops.autotune, name).default._schema) for name in names} == held
