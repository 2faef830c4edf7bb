"""The resources of a loaded kernel, and its resident blocks, as the driver states them."""

from __future__ import annotations

from autotune.cuda.program import Program
from autotune.families.plan import Launch, Resources
from autotune.measure.session import LoadedKernel, Session


def attribute(kernel: LoadedKernel, name: str) -> int:
    """An attribute of a kernel, such as `NUM_REGS`."""
    kind = getattr(kernel.cuda.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
    return int(kernel.checked(kernel.cuda.cuFuncGetAttribute(kind, kernel.function)))


def resources(session: Session, program: Program, launch: Launch) -> Resources:
    """The resources of a launch; the driver does not state `barriers`."""
    kernel = session.load(program, launch.parameters, launch.shared)
    return Resources(
        threads=launch.threads,
        registers=attribute(kernel, "NUM_REGS"),
        shared=attribute(kernel, "SHARED_SIZE_BYTES") + launch.shared,
        local=attribute(kernel, "LOCAL_SIZE_BYTES"),
        barriers=program.barriers,
    )


def resident_blocks(session: Session, program: Program, launch: Launch) -> int:
    """Resident blocks of an SM, from the driver's occupancy calculator."""
    kernel = session.load(program, launch.parameters, launch.shared)
    query = kernel.cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor
    return int(kernel.checked(query(kernel.function, launch.threads, launch.shared)))
