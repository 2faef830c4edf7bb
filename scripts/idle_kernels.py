"""Compiles the kernel that does nothing, with which drivers are asked for resident clusters.

    python scripts/idle_kernels.py

writes `autotune/data/idle/sm_90.cubin` and so on: a file for each architecture whose programs run
on all later minor versions. A driver loads them in 0.1 ms; it would take 20 to 60 ms to compile.
"""

from __future__ import annotations

from pathlib import Path

from cuda.bindings import nvrtc

OUT = Path(__file__).parents[1] / "autotune/data/idle"
ARCHITECTURES = ("sm_90", "sm_100", "sm_110", "sm_120")
SOURCE = b'extern "C" __global__ void idle() {}'


def cubin(arch: str) -> bytes:
    """The kernel compiled for an architecture."""
    options = [f"--gpu-architecture={arch}".encode(), b"--no-source-include"]
    program = _called(nvrtc.nvrtcCreateProgram(SOURCE, b"idle.cu", 0, [], []))
    _called(nvrtc.nvrtcCompileProgram(program, len(options), options))
    code = bytes(_called(nvrtc.nvrtcGetCUBINSize(program)))
    _called(nvrtc.nvrtcGetCUBIN(program, code))
    _called(nvrtc.nvrtcDestroyProgram(program))
    return code


def _called(answer: tuple[object, ...]) -> int:
    status, *values = answer
    if int(status):  # type: ignore[call-overload]
        raise SystemExit(f"NVRTC says {status!r}")
    return values[0] if values else 0  # type: ignore[return-value]


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for name in ARCHITECTURES:
        code = cubin(name)
        (OUT / f"{name}.cubin").write_bytes(code)
        print(f"{name}: {len(code)} bytes")
