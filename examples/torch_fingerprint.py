"""Stops a distributed program whose ranks would launch different kernels.

    torchrun --nproc-per-node 8 examples/torch_fingerprint.py
    torchrun --nproc-per-node 8 examples/torch_fingerprint.py shapes.json

Ranks that look their kernels up in caches of their own may sum in different orders, so that
replicas drift apart. Comparing a hash of what would run costs one small message at the start.
"""

from __future__ import annotations

import sys
from typing import Any

import autotune


def check_ranks(distributed: Any, ours: str) -> None:
    """Raises an error on every rank if the fingerprints of the ranks differ.

    Args:
        distributed: `torch.distributed`, initialised.
        ours: the fingerprint of this rank.
    """
    all_of_them: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(all_of_them, ours)
    if len({*all_of_them}) > 1:
        listed = ", ".join(f"{rank}: {text[:12]}" for rank, text in enumerate(all_of_them))
        raise SystemExit(
            f"the ranks would launch different kernels ({listed}); give them one cache: "
            "`autotune cache export` on one, `autotune cache import` on the others"
        )


def main(arguments: list[str]) -> int:
    """Compares the ranks: the shapes of a file, else all that is recorded; returns the status."""
    try:
        import torch
        from torch import distributed
    except ImportError:
        print("this example needs PyTorch: pip install torch")
        return 1
    if not torch.cuda.is_available():
        print("this example needs a GPU, and PyTorch sees none")
        return 1
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    shapes = [*autotune.Shapes.load(arguments[0])] if arguments else []
    device = rank % torch.cuda.device_count()
    with autotune.policy(frozen=True):  # what is not recorded goes to cuBLAS on every rank
        check_ranks(distributed, str(autotune.fingerprint(*shapes, device=device)))
    if rank == 0:
        print("all ranks launch the same kernels")
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
