"""The keywords of `tune` and `tune_kernel` that callers may know by another name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

KERNEL_TUNER: Mapping[str, str] = {
    "kernel_name": "name",
    "kernel_source": "source, a pathlib.Path if it is a file",
    "tune_params": "parameters",
    "grid_div_x": "grid_div",
    "grid_div_y": "grid_div",
    "grid_div_z": "grid_div",
    "block_size_names": "block",
    "restrictions": "constraints",
    "answer": "reference",
    "atol": "verify=Verification(atol=)",
    "smem_args": "shared",
    "cmem_args": "constants",
    "texmem_args": "arguments, with autotune.Texture(array)",
    "compiler": "compile=Compilation(compiler=)",
    "compiler_options": "compile=Compilation(options=, include=)",
    "defines": "compile=Compilation(defines=True, options=)",
    "strategy": "search=Search(sampler=)",
    "strategy_options": "search=Search(trials=, seconds=)",
    "objective": "search=Search(objective=) or Search(score=)",
    "objective_higher_is_better": "search=Search(score=), whose least value is best",
    "observers": "search=Search(energy=True) and metrics",
    "cache": "none: a second call continues the first",
    "simulation_mode": 'device="replay:FILE"',
    "iterations": "none: the time of a run decides",
    "quiet": "progress=False",
    "verbose": "none: rejections are counted by reason",
    "lang": "none: kernels are CUDA C++",
    "parallel": "none: one GPU measures, search=Search(jobs=) compile",
    "seed": "search=Search(seed=)",
}
"""Keywords of Kernel Tuner's `tune_kernel` that have another name here, or none."""

_NONE = "none: "


def naming(**values: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the TypeError for an unknown keyword names the word that stands for it, and the
    TypeError for too many positional arguments those that may be.

    Args:
        values: the keywords whose values are dataclasses, with these classes.
    """

    def named(function: Callable[P, R]) -> Callable[P, R]:
        spec = inspect.getfullargspec(function)
        parameters = {*spec.args, *spec.kwonlyargs}

        @wraps(function)
        def checked(*args: P.args, **keywords: P.kwargs) -> R:
            for name in keywords.keys() - parameters:
                if hint := hint_for(name, parameters, values):
                    raise TypeError(f"{function.__name__}() has no {name!r}{hint}")
            if len(args) > len(spec.args) and spec.varargs is None:
                order = ", ".join(spec.args)
                raise TypeError(f"{function.__name__}() takes {order}; name the other arguments")
            return function(*args, **keywords)

        return checked

    return named


def hint_for(name: str, parameters: Collection[str], values: Mapping[str, Any]) -> str:
    """The end of a message that names the word for an unknown keyword of a function with the
    given `parameters`; empty if nothing stands for it."""
    words = [KERNEL_TUNER.get(name, "")]
    for keyword, value in values.items():
        if name in {field.name for field in fields(value)}:
            words.append(f"{keyword}={value.__name__}({name}=)")
    for word in words:
        if word.startswith(_NONE):
            return f": {word.removeprefix(_NONE)}"
        if word and re.split(r"\W", word)[0] in parameters:
            return f"; its word here is {word}"
    return ""
