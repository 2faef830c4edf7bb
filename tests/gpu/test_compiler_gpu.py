"""Compilation on a machine with a driver."""

from autotune.compiler import Program, compile
from autotune.families.plan import Template
from autotune.gpu.session import Session


def test_compiling_twice_gives_the_same_resources(session: Session) -> None:
    # With a driver, NVRTC has its own cache, and cached programs come without a log.
    template = Template(
        "tiled.cu", "tiled", (("TILE_WIDTH", 16), ("TRANS_A", 0), ("TRANS_B", 0), ("EPILOGUE", 0))
    )
    first, second = (compile(template, session.device.arch, cache=None) for _ in range(2))
    assert isinstance(first, Program)
    assert isinstance(second, Program)
    assert (first.registers, first.cubin) == (second.registers, second.cubin)
