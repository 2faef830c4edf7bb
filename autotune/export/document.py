"""An export described: its plans as JSON, and the README of a C library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256

from autotune.cuda.program import Program
from autotune.export.files import MADE_BY
from autotune.export.library import (
    CompiledKernels,
    ExportedGemm,
    ExportedLibrary,
    FallbackKernel,
    ptx_file,
)
from autotune.families.plan import Argument, Launch, Struct, TensorMap
from autotune.version import __version__

SCHEMA = 1


def document(library: ExportedLibrary, files: Mapping[str, str]) -> dict[str, object]:
    """A library without its machine code. `files` has the names of the kernels' own files, by the
    key of the program."""
    return {
        **head(library),
        "counters": library.counters,
        "devices": [device.to_json() for device in library.devices],
        "kernels": programs_json(library, files),
        "products": [_gemm(gemm) for gemm in library.gemms],
        "general": [_fallback(fallback) for fallback in library.fallbacks],
    }


def head(library: CompiledKernels) -> dict[str, object]:
    """The first fields of an export's document."""
    return {"schema": SCHEMA, "made_by": f"{MADE_BY}{__version__}", "name": library.name}


def programs_json(library: CompiledKernels, files: Mapping[str, str]) -> list[dict[str, object]]:
    """The programs of an export, with the names of their own files, if they have some."""
    return [
        _program(program, library.ptx.get(program.key), files.get(program.key))
        for program in library.programs.values()
    ]


def _program(program: Program, ptx: bytes | None, file: str | None) -> dict[str, object]:
    template = program.template
    data: dict[str, object] = {
        "key": program.key,
        "symbol": program.symbol,
        "arch": program.arch,
        "source": template.source,
        "kernel": template.kernel,
        "template": template.values,
        "registers": program.registers,
        "shared": program.shared,
        "local": program.local,
        "barriers": program.barriers,
        "compiler": program.compiler,
        "sha256": sha256(program.cubin).hexdigest(),
    }
    if file is not None:
        data["file"] = file
    if ptx is not None:
        data["ptx_sha256"] = sha256(ptx).hexdigest()
        if file is not None:
            data["ptx_file"] = ptx_file(file)
    return data


def _gemm(gemm: ExportedGemm) -> dict[str, object]:
    answer = gemm.answer
    return {
        "problem": str(gemm.problem),
        "device": gemm.device.name,
        "how": answer.how,
        "objective": str(answer.objective),
        "evidence": answer.evidence,
        "time_us": answer.time_us,
        "expected_loss": answer.expected_loss,
        "vendor_faster": answer.vendor,
        "cublaslt_faster": gemm.algorithm.version if gemm.algorithm else None,
        "note": answer.note,
        "config": str(answer.config),
        "alignment": asdict(gemm.alignment),
        "plan": {
            "workspace": gemm.plan.workspace,
            "counters": gemm.plan.counters,
            "product": gemm.plan.product,
            "launches": [*map(launch_json, gemm.plan.launches, gemm.programs)],
        },
    }


def _fallback(fallback: FallbackKernel) -> dict[str, object]:
    general, problem = fallback.general, fallback.general.problem
    launch = launch_json(general.launch, fallback.program)
    del launch["grid"]
    return {
        "compute_capability": list(fallback.compute_capability),
        "compute": problem.compute,
        "layout": problem.layout,
        "epilogue": str(problem.epilogue),
        "output": problem.output,
        "config": str(general.config),
        "alignment": asdict(general.alignment),
        "tile": list(general.tile),
        "launch": launch,
    }


def launch_json(launch: Launch, program: Program) -> dict[str, object]:
    """A launch, which names the key of its kernel."""
    return {
        "kernel": program.key,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "cluster": launch.cluster,
        "shared": launch.shared,
        "arguments": [_argument(argument) for argument in launch.arguments],
    }


def _argument(argument: Argument) -> dict[str, object]:
    value = argument.value
    if isinstance(value, Struct):
        members = [_argument(member) | {"name": name} for name, member in value.members]
        return {"type": "struct", "struct": value.name, "members": members}
    return {
        "type": argument.type if isinstance(argument.type, str) else f"{argument.type} bytes",
        "value": asdict(value) if isinstance(value, TensorMap) else value,
    }


_TEXT = """\
# {name}

Tuned CUDA kernels for matrix multiplication, `C = act(alpha op(A) op(B) + beta C + bias)`, as a C
library. Made by autotune {version}. It needs nothing but the CUDA driver (12 or newer), which the
first call opens, so it builds and links on machines without a driver.

## Build

    cc -std=c11 -c {name}.c                                   # or c++ -std=c++17
    cmake -B build && cmake --build build                     # also installs: find_package({name}),
    cmake --install build --prefix WHERE                      # pkg-config {name}

Link with `-ldl -lpthread`. `main.c` computes every shape below on a GPU and compares it with the
CPU: `cc -std=c11 main.c {name}.c -ldl -lpthread -lm -o example && ./example`. With pkg-config, link
a static library with `pkg-config --static`.

## Use

    {name}_product product = {name}_default(m, n, k);
    product.a = a, product.b = b, product.c = c;              /* device memory */
    size_t bytes;
    status = {name}_workspace_size(&product, &bytes);         /* allocate it, at 256 bytes */
    status = {name}_prepare_workspace(workspace, bytes, stream);  /* once for a workspace */
    status = {name}_matmul(&product, workspace, bytes, stream);

In C++17, `{name}.hpp` has the same with exceptions and a workspace that owns its memory:

    {name}::Workspace workspace(stream);
    {name}::matmul(product, workspace);

`{name}.h` documents the rest. `{name}_message(status)` explains a status other than 0. A context
has to be current; with the runtime API, `cudaFree(0)` creates the device's. `{name}_warm_up` loads
all kernels, so that a graph can capture even the first call of a shape. Two calls that may run at
the same time need separate workspaces.

A call runs the kernel exported for its shape, if there is one for the current GPU by name or else
for a GPU of the same compute capability. The operands have to allow the vectors that this kernel
loads; operands without gaps at multiples of 16 bytes do. Every other call of the kinds below
(compute, layout, epilogue and output) runs a general kernel, which takes any size, leading
dimension and element-aligned address. Those of 8 bits have none: their operands must not have gaps
that the exported kernel's vectors do not allow. `{name}_choose` tells which kernel runs.

Each kernel is checked against its SHA-256 before it is loaded.
{ptx}{cublaslt}
## Contents

{gemms}

`exact` was tuned for the shape on that GPU; `nearest`, `related` and `range` come from other
records, `predicted` from the cost model. Times were measured during tuning; `cold` is with operands
that are not in L2.

| general kernel for | compute capability | operands | |
|---|---|---|---|
{generals}

{kernels} kernels, {size} bytes of machine code, compiled by {compilers}.
"""

_PTX = """
## Newer GPUs

A GPU of a newer compute capability than those below runs the PTX of the kernels, which its driver
compiles at the first call or in `{name}_warm_up`, and keeps in its own cache. The driver has to be
of the compiler's CUDA version or newer. Nothing was tuned or measured there.
"""

_CUBLASLT = """
## cuBLASLt

Shapes that an algorithm of cuBLASLt was measured to be the fastest on run by that algorithm where
`libcublasLt.so.13` or `.12` opens and has the version in brackets, and where operands have no gaps
and begin at multiples of 16 bytes. Else the exported kernel runs. cuBLASLt allocates when a shape
is first asked about: {problems}.
"""


def readme(library: ExportedLibrary, *, cublaslt: bool = False) -> str:
    """The README: how to build and use the library, and where its kernels come from; with
    `cublaslt`, which problems that computes."""
    programs = library.programs.values()
    faster = dict.fromkeys(
        f"`{gemm.problem}` ({gemm.algorithm.version})"
        for gemm in library.gemms
        if gemm.algorithm and gemm.calls_library
    )
    return _TEXT.format(
        name=library.name,
        version=__version__,
        gemms=_gemms(library),
        generals="\n".join(_generals(library)),
        kernels=len(programs),
        size=sum(len(program.cubin) for program in programs),
        compilers=", ".join(sorted({program.compiler for program in programs})),
        ptx=_PTX.format(name=library.name) + _unportable(library) if library.ptx else "",
        cublaslt=_CUBLASLT.format(problems=", ".join(faster)) if cublaslt and faster else "",
    )


def _unportable(library: ExportedLibrary) -> str:
    """The sentence on problems whose kernels are for one architecture alone; empty if none are."""
    problems = dict.fromkeys(
        f"`{gemm.problem}`"
        for gemm in library.gemms
        if any(program.key not in library.ptx for program in gemm.programs)
    )
    if not problems:
        return ""
    return (
        "The kernels of these problems use instructions of one architecture alone and have no PTX, "
        f"so the general kernel, if present, runs instead: {', '.join(problems)}.\n"
    )


def _gemms(library: ExportedLibrary) -> str:
    lines = ["| problem | GPU | from | time | kernel |", "|---|---|---|---|---|"]
    for gemm in library.gemms:
        answer = gemm.answer
        how = f"{answer.evidence}{answer.objective.suffix(', ')}"
        time = "" if answer.time_us is None else f"{answer.time_us:.4g} us ({how})"
        source = answer.how + (", cuBLAS was faster" if answer.vendor else "")
        if gemm.algorithm:
            source = f"{answer.how}, cuBLASLt {gemm.algorithm.version} was faster"
        lines.append(
            f"| `{gemm.problem}` | {gemm.device.name} | {source} | {time} | `{answer.config}` |"
        )
    return "\n".join(lines)


def _generals(library: ExportedLibrary) -> list[str]:
    lines = []
    for fallback in library.fallbacks:
        general, kind = fallback.general, fallback.general.problem
        words = [kind.compute, kind.layout, kind.epilogue]
        words += [f"out={kind.output}"] if kind.output != "same" else []
        align = general.alignment
        whole = f"multiples of {align.a}, {align.b} and {align.c} elements"
        operands = "any" if max(align.a, align.b, align.c) == 1 else whole
        capability = "{}.{}".format(*fallback.compute_capability)
        lines.append(f"| `{':'.join(words)}` | {capability} | {operands} | `{general.config}` |")
    return lines
