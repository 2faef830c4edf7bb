"""One verified product of each kernel, small enough for a sanitizer.

    compute-sanitizer --tool memcheck python tests/gpu/sanitize.py [family...]

With no family it runs all of them. It prints a line a product and exits with 1 if one is wrong;
`--error-exitcode 1` makes the sanitizer do so for what it finds itself.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_candidates import with_values
from gpu_cases import Case

from autotune.families.config import Value
from autotune.families.wgmma.rules import ARCHITECTURE
from autotune.gpu.benches.gemm import GemmBench
from autotune.gpu.session import Session
from autotune.gpu.verify import Verdict
from autotune.problem import Problem

PRODUCTS: tuple[tuple[str, str, tuple[int, int, int], Mapping[str, Value]], ...] = (
    # Packed, as its rows are odd; read where it is; added up by the last block.
    ("wgmma", "133x71x203:bf16:nn:bias", (0, 0, 0), {}),
    ("wgmma", "136x72x200:bf16:tt", (8, 8, 8), {}),
    ("wgmma", "133x71x1027:bf16:nt:batch=2", (1, 0, 1), {"reduction": "fused", "cluster": "1x1"}),
    ("wgmma", "133x71x1027:tf32x3:nt", (0, 1, 0), {"reduction": "fused"}),
    ("wgmma", "133x71x203:tf32:tn", (0, 0, 0), {}),
    ("mma", "133x71x203:bf16:nn:bias", (0, 0, 0), {}),
    ("mma", "136x72x1032:bf16:tt", (8, 8, 8), {"split_k": 4}),
    ("mma", "133x71x203:tf32:nt", (1, 2, 3), {}),
    ("mma", "133x71x203:tf32x3:tn:batch=2", (0, 0, 0), {}),
    ("gemv", "5x301x1003:f32:nn", (0, 0, 1), {}),
    ("simt", "133x71x203:f32:nt:bias_relu", (1, 2, 3), {}),
)


def run(session: Session, families: Sequence[str], programs: Path) -> int:
    """Verifies the products of these families; the number of wrong ones."""
    wrong = 0
    for family, text, gaps, values in PRODUCTS:
        if family not in families:
            continue
        if family == "wgmma" and session.device.compute_capability != ARCHITECTURE:
            print(f"left out: {family} {text}, which needs compute capability 9.0")
            continue
        case = Case(Problem.parse(text), gaps)
        one = with_values(case, family, values, session.device, programs)
        bench = GemmBench(
            session,
            case.problem,
            leading_dimensions=case.leading_dimensions,
            strides=case.strides,
            cache=programs,
        )
        outcome = bench.verify(one)
        right = isinstance(outcome, Verdict)
        wrong += not right
        print(f"{'right' if right else outcome}: {case} {one.config}", flush=True)
    return wrong


def main(arguments: Sequence[str]) -> int:
    known = dict.fromkeys(family for family, *_ in PRODUCTS)
    unknown = [name for name in arguments if name not in known]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; give some of {', '.join(known)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as programs, Session() as session:
        return 1 if run(session, arguments or list(known), Path(programs)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
