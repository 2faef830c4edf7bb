from autotune.compiler import Program, compile
from autotune.families.plan import Template
from autotune.gpu.session import Session


def test_a_program_compiled_twice_has_its_resources_twice(session: Session) -> None:
    # With a driver NVRTC caches by itself, and then says nothing of registers.
    template = Template(
        "tiled.cu", "tiled", (("TILE_WIDTH", 16), ("TRANS_A", 0), ("TRANS_B", 0), ("EPILOGUE", 0))
    )
    first, second = (compile(template, session.device.arch, cache=None) for _ in range(2))
    assert isinstance(first, Program)
    assert isinstance(second, Program)
    assert (first.registers, first.cubin) == (second.registers, second.cubin)
