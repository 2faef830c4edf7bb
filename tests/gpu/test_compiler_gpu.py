"""Compilation on a machine with a driver."""

from autotune.cuda.compiler import compile
from autotune.cuda.program import Program
from autotune.families import registry
from autotune.families.config import Config
from autotune.measure.session import Session
from autotune.problem import Problem


def test_compiling_twice_gives_the_same_resources(session: Session) -> None:
    # With a driver, NVRTC has its own cache, and cached programs come without a log.
    config = Config.parse("tiled:tile_width=16,specialized=1")
    template = registry.plan(config, Problem(64, 64, 64)).main.template
    first, second = (compile(template, session.device.arch, cache=None) for _ in range(2))
    assert isinstance(first, Program)
    assert isinstance(second, Program)
    assert (first.registers, first.cubin) == (second.registers, second.cubin)
