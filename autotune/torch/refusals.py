"""What the operators say of tensors whose memory no kernel reads. PyTorch would name a backend."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch

from autotune.errors import ArrayError
from autotune.problem.vendor import obstacle
from autotune.torch.scaled import SCHEMAS

OPERATORS = ("mm", "mm_batch_invariant", "quantize", *SCHEMAS)
KINDS = "Sparse", "SparseCsr", "Quantized", "NestedTensor"
BACKENDS = *map("".join, product(KINDS, ("CPU", "CUDA"))), "AutogradNestedTensor"


def register(library: Any) -> None:
    """Implements the operators for the tensors that they refuse."""
    for name, backend in product(OPERATORS, BACKENDS):
        library.impl(name, _refuse, backend)


def _refuse(*arguments: Any, **named: Any) -> Any:
    """Refuses the first tensor whose memory no kernel reads.

    Raises:
        ArrayError: always.
    """
    for word, argument in (*enumerate(arguments), *named.items()):
        if isinstance(argument, torch.Tensor) and (reason := obstacle(torch, argument)) is not None:
            raise ArrayError(f"argument {word} {reason}")
    raise ArrayError("no kernel takes these tensors together; give plain ones on one device")
