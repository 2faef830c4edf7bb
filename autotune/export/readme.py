"""The README of an exported C library."""

from __future__ import annotations

from autotune.export.library import ExportedLibrary
from autotune.version import __version__

_TEXT = """\
# {name}

Tuned matrix products for CUDA, `C = act(alpha op(A) op(B) + beta C + bias)`, in C. Made by autotune
{version}. The CUDA driver (12 or newer) is all that it needs, and is opened by the first call: the
library builds and links where there is none.

## Build

    cc -std=c11 -c {name}.c                                   # or c++ -std=c++17
    cmake -B build && cmake --build build                     # also installs: find_package({name}),
    cmake --install build --prefix WHERE                      # pkg-config {name}

Link with `-ldl -lpthread`. `main.c` computes every product below on a GPU and compares it with the
CPU: `cc -std=c11 main.c {name}.c -ldl -lpthread -lm -o example && ./example`. With pkg-config, link
a static library with `pkg-config --static`.

## Use

    {name}_product product = {name}_default(m, n, k);
    product.a = a, product.b = b, product.c = c;              /* device memory */
    size_t bytes;
    status = {name}_workspace_size(&product, &bytes);         /* allocate it, at 256 bytes */
    status = {name}_prepare_workspace(workspace, bytes, stream);  /* once for a workspace */
    status = {name}_matmul(&product, workspace, bytes, stream);

`{name}.h` says the rest. A status that is not 0 has a text, `{name}_message(status)`. A context has
to be current; with the run time API, `cudaFree(0)` makes the device's. `{name}_warm_up` loads all
kernels, so that later products can be captured in graphs at once. Two products that may run at the
same time need a workspace each.

A product runs the kernel that was chosen for its shape if there is one for the current GPU, by its
name, else for one of its compute capability, and if the operands allow the vectors that it counts
on, as operands without gaps at multiples of 16 bytes do. Everything else of the kinds below
(compute, layout, epilogue and output) runs a general kernel, for any size, leading dimension and
address of an element. `{name}_choose` says which.

Each kernel is compared with its SHA-256 before it is loaded.

## What is in it

{products}

`exact` was tuned for the shape, on that GPU; `nearest`, `related` and `range` come from other
records, `predicted` from a model. Times are of the tuning run.

| general kernel for | compute capability | operands | |
|---|---|---|---|
{generals}

{kernels} kernels, {size} bytes of machine code, by {compilers}.
"""


def readme(library: ExportedLibrary) -> str:
    """How to build and use the library, and where its kernels are from."""
    programs = library.programs.values()
    return _TEXT.format(
        name=library.name,
        version=__version__,
        products=_products(library),
        generals="\n".join(_generals(library)),
        kernels=len(programs),
        size=sum(len(program.cubin) for program in programs),
        compilers=", ".join(sorted({program.compiler for program in programs})),
    )


def _products(library: ExportedLibrary) -> str:
    lines = ["| product | GPU | from | time | kernel |", "|---|---|---|---|---|"]
    for product in library.products:
        answer = product.answer
        time = "" if answer.time_us is None else f"{answer.time_us:.4g} us ({answer.evidence})"
        source = answer.how + (", cuBLAS was faster" if answer.vendor else "")
        lines.append(
            f"| `{product.problem}` | {product.device.name} | {source} | {time} | "
            f"`{answer.config}` |"
        )
    return "\n".join(lines)


def _generals(library: ExportedLibrary) -> list[str]:
    lines = []
    for one in library.fallbacks:
        general, kind = one.general, one.general.problem
        words = [kind.compute, kind.layout, kind.epilogue]
        words += [f"out={kind.output}"] if kind.output != "same" else []
        align = general.alignment
        whole = f"multiples of {align.a}, {align.b} and {align.c} elements"
        operands = "any" if max(align.a, align.b, align.c) == 1 else whole
        capability = "{}.{}".format(*one.compute_capability)
        lines.append(f"| `{':'.join(words)}` | {capability} | {operands} | `{general.config}` |")
    return lines
