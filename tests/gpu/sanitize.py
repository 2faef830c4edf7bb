"""One verified GEMM of each kernel, small enough for a sanitizer.

    PYTHONPATH=tests compute-sanitizer --tool memcheck python tests/gpu/sanitize.py [family...]

Without a family it runs all of them. It prints a line for each GEMM and exits with status 1 if one
is wrong; `--error-exitcode 1` makes the sanitizer do the same for its own findings.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from candidate_samples import with_values
from problem_cases import Case

from autotune.families.config import Value
from autotune.families.wgmma.rules import ARCHITECTURE
from autotune.measure.bench import GemmBench
from autotune.measure.session import Session, open_session
from autotune.measure.verify import Passed
from autotune.problem import Problem

GEMMS: tuple[tuple[str, str, tuple[int, int, int], Mapping[str, Value]], ...] = (
    # Operands packed (rows of odd length), operands in place, K summed by the last block.
    ("wgmma", "133x71x203:bf16:nn:bias", (0, 0, 0), {}),
    ("wgmma", "136x72x200:bf16:tt", (8, 8, 8), {}),
    ("wgmma", "133x71x1027:bf16:nt:batch=2", (1, 0, 1), {"reduction": "fused", "cluster": "1x1"}),
    ("wgmma", "133x71x1027:tf32x3:nt", (0, 1, 0), {"reduction": "fused"}),
    ("wgmma", "133x71x203:tf32:tn", (0, 0, 0), {}),
    # Clusters of four and eight, with splits of K within and across clusters, and stream-K; an A
    # that L2 drops first.
    ("wgmma", "505x501x203:bf16:nt", (0, 0, 0), {"cluster": "2x2"}),
    ("wgmma", "505x501x203:f16:nn", (0, 0, 0), {"cluster": "2x4"}),
    ("wgmma", "250x254x2050:bf16:nt", (0, 0, 0), {"cluster": "1x2x4"}),
    ("wgmma", "250x254x2050:bf16:nn", (0, 0, 0), {"cluster": "1x2", "reduction": "fused"}),
    ("wgmma", "1025x1023x1027:bf16:nt", (0, 0, 0), {"cluster": "1x2", "reduction": "stream"}),
    ("wgmma", "61x4099x515:bf16:nt", (0, 0, 0), {"source": "streamed"}),
    ("mma", "133x71x203:bf16:nn:bias", (0, 0, 0), {}),
    ("mma", "136x72x1032:bf16:tt", (8, 8, 8), {"split_k": 4}),
    ("mma", "133x71x203:tf32:nt", (1, 2, 3), {}),
    ("mma", "133x71x203:tf32x3:tn:batch=2", (0, 0, 0), {}),
    # A column of tiles a block, with A by cp.async and through registers.
    ("mma", "8213x72x46:bf16:nn:bias", (2, 0, 0), {"copy": "ahead"}),
    ("mma", "8213x71x45:f16:nt", (0, 1, 0), {"copy": "ahead"}),
    # 8 bits: transposed copies, scales of each kind, sums of splits in fp32 and in int32.
    ("wgmma", "133x71x203:f8:nn:scale=row:bias", (0, 0, 0), {}),
    ("wgmma", "133x271x1027:f8e5:nt:e5m2=b:scale=block", (1, 0, 1), {"reduction": "fused"}),
    ("wgmma", "250x254x2050:f8:nt:fast:scale=tensor", (0, 0, 0), {"cluster": "1x2"}),
    ("wgmma", "250x254x4098:i8:nt:out=i32", (14, 14, 2), {"cluster": "1x1x4"}),
    ("wgmma", "24x301x1027:i8:tt:scale=row", (0, 0, 0), {"swap": 1}),
    ("mma", "133x71x203:f8:tn:scale=row:bias", (0, 0, 0), {}),
    ("mma", "133x271x1027:f8e5:nt:scale=block", (1, 2, 3), {"split_k": 2}),
    ("mma", "136x72x1040:i8:nt:out=i32", (8, 8, 8), {"split_k": 4}),
    ("mma", "5x301x1027:f8:nt:scale=block", (0, 0, 0), {"swap": 1}),
    ("gemv", "5x301x1003:f32:nn", (0, 0, 1), {}),
    ("simt", "133x71x203:f32:nt:bias_relu", (1, 2, 3), {}),
)


def run(session: Session, families: Sequence[str], programs: Path) -> int:
    """Verifies the GEMMs of these families; returns the number of wrong ones."""
    wrong = 0
    for family, text, gaps, values in GEMMS:
        if family not in families:
            continue
        if family == "wgmma" and session.device.compute_capability != ARCHITECTURE:
            print(f"skipped: {family} {text}, which needs compute capability 9.0")
            continue
        case = Case(Problem.parse(text), gaps)
        candidate = with_values(case, family, values, session.device, programs)
        bench = GemmBench(
            session,
            case.problem,
            leading_dimensions=case.leading_dimensions,
            strides=case.strides,
            cache=programs,
        )
        outcome = bench.verify(candidate)
        right = isinstance(outcome, Passed)
        wrong += not right
        print(f"{'right' if right else outcome}: {case} {candidate.config}", flush=True)
    return wrong


def main(arguments: Sequence[str]) -> int:
    families = dict.fromkeys(family for family, *_ in GEMMS)
    unknown = [name for name in arguments if name not in families]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; give some of {', '.join(families)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as programs, open_session() as session:
        return 1 if run(session, arguments or list(families), Path(programs)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
