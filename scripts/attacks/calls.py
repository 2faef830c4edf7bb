"""Random invalid calls of an exported C library, under the sanitizers of the C compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

from support import bad_calls

from attacks.outcome import Outcome


def run(count: int, seed: int, folder: Path) -> Outcome:
    """Makes `count` calls of a library of plain, split-K and tensor-map kernels."""
    if shutil.which("gcc") is None:
        return Outcome(skipped=("no gcc",))
    bad_calls.build(folder)
    result = bad_calls.run(folder, count, seed + 1)
    broken = [f"seed {seed + 1}: {line}" for line in result.unsafe]
    if result.reports:
        broken.append(f"seed {seed + 1}: {result.reports[:1000]}")
    if result.calls != count:
        broken.append(f"seed {seed + 1}: {result.calls} of {count} calls were made")
    counts = {"calls": result.calls, "refused": result.refused, "accepted": result.accepted}
    return Outcome(counts, broken=tuple(broken))
