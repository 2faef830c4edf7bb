"""cuBLASLt as a further baseline: each result of its heuristic as a run.

The GPU's bench calls `cublaslt:open_baselines` in its worker process (see `suite.py`).
"""

from __future__ import annotations

from autotune.cuda.cublaslt import WORKSPACE, CublasLt, Found
from autotune.errors import RunnerError
from autotune.families.plan import LibraryCall
from autotune.measure.operands import Operands
from autotune.measure.session import Run, Session


def open_baselines(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """Runs of C = op(A) op(B) in the problem's precision, one for each result of the heuristic.

    Returns:
        At most 16 runs with their names, the library's first choice first; none for a batch, an
        epilogue or operands of 8 bits. All of them share one workspace.

    Raises:
        MissingError: if the library is missing.
        RunnerError: if the library refuses.
    """
    problem = operands.problem
    if problem.batch > 1 or problem.epilogue != "none" or problem.precision.eight_bit:
        return []
    library, workspace = CublasLt.load(), session.allocate(WORKSPACE)
    values = {**operands.values(1.0, 0.0), "workspace": int(workspace)}

    def runner(found: Found) -> Run:
        bound = library.bind(LibraryCall(problem, found.algorithm), values)

        def run(_kept: object = workspace) -> None:
            bound.enqueue(values, session.stream, WORKSPACE)

        return run

    usable = filter(_launches, map(runner, library.heuristic(problem, values)))
    return [(f"cuBLASLt {rank}", run) for rank, run in enumerate(usable, 1)]


def _launches(run: Run) -> bool:
    """Whether the library accepts its own result, which it checks only at launch."""
    try:
        run()
    except RunnerError:
        return False
    return True
