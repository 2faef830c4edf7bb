"""The problems that `shipped.py` tunes, in its order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, product

from suite import SUITE

from autotune.problem import Problem

# Rows and columns of the weights, as PyTorch's `Linear` stores them. Query, key and value are one
# layer or three, gate and up are of one size; Mistral's 7B has the sizes of Llama's 8B.
MODELS = {
    "Llama 3 8B": ((6144, 4096), (4096, 4096), (14336, 4096), (4096, 14336), (1024, 4096)),
    "GPT-2": ((2304, 768), (768, 768), (3072, 768), (768, 3072)),
    "Qwen 2.5 7B": ((3584, 3584), (18944, 3584), (3584, 18944), (512, 3584)),
    "BERT large": ((1024, 1024), (4096, 1024), (1024, 4096)),
    "Llama 3 70B": ((8192, 8192), (28672, 8192), (8192, 28672), (1024, 8192)),
}
# Tokens a batch: the most different numbers come first.
ROWS = (16, 2048, 1, 128, 8192, 64, 512, 8)
# Models that are also tuned in the precisions of fp32 operands.
IN_FULL = ("GPT-2", "BERT large")
FULL_ROWS = (128, 2048)
PRECISIONS = ("f32", "bf16", "tf32", "f16")
"""Precisions of the suite; `tf32x3` comes last."""
EIGHT_BIT = ("f8:scale=tensor", "f8:scale=row", "i8:scale=tensor", "f8:scale=block", "f8:fast")
"""Precisions and scales of the 8-bit suite, in nt; layers of models have a scale a row."""
LAYER_EIGHT_BIT = "f8:scale=row"


def problems(computes: Sequence[str] | None = None) -> list[Problem]:
    """All problems, or those of some precisions; any prefix is a useful set."""
    # Suite and layers alternate while both last; a layer's bf16 and f16 count as one.
    suites, layers = suite(), list(models())
    turns = max(len(suites), len(layers))
    ordered = chain.from_iterable(
        (*suites[turn : turn + 1], *(layers[turn] if turn < len(layers) else ()))
        for turn in range(turns)
    )
    every = dict.fromkeys((*ordered, *eight_bit()))
    return [problem for problem in every if not computes or problem.compute in computes]


def eight_bit() -> list[Problem]:
    """The 8-bit suite, one kind after the other, and the models' layers between the kinds."""
    suites = ([Problem.parse(f"{text}:nt:{kind}") for text in SUITE] for kind in EIGHT_BIT)
    layers = [Problem.parse(f"{layer.shape}:nt:{LAYER_EIGHT_BIT}") for layer, *_ in models()]
    first, *others = suites
    unique = dict.fromkeys(layers)
    return [*first, *unique, *chain.from_iterable(others)]


def suite() -> list[Problem]:
    """The suite's problems: each shape in one precision before any shape in two."""
    shapes = [Problem.parse(text) for text in SUITE]
    rounds = [
        replace(shape, compute=PRECISIONS[(place + turn) % len(PRECISIONS)])
        for turn in range(len(PRECISIONS))
        for place, shape in enumerate(shapes)
    ]
    return rounds + [replace(shape, compute="tf32x3") for shape in shapes]


def models() -> Iterator[tuple[Problem, ...]]:
    """The models' layers, alternating between models: bf16 with its f16 twin, then the others."""
    most = max(map(len, MODELS.values()))
    for rows, place in product(ROWS, range(most)):
        for sizes in MODELS.values():
            if place < len(sizes):
                layer = Problem(rows, *sizes[place], "bf16", "nt")
                yield layer, replace(layer, compute="f16")
    for rows, compute, model in product(FULL_ROWS, ("tf32", "f32"), IN_FULL):
        for columns, inner in MODELS[model]:
            yield (Problem(rows, columns, inner, compute, "nt"),)
