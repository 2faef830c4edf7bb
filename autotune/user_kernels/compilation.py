"""The compiler of a user kernel, chosen once, and mistakes that its messages reveal.

NVRTC comes first, as it needs no toolkit. It compiles no host code, so a file with `main` or
`<cstdio>` goes to nvcc.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Lock
from typing import NamedTuple

from autotune import settings
from autotune.cuda import compiler, nvcc
from autotune.cuda.program import CompileFailure, Program, source_hash
from autotune.errors import MissingError, UsageError
from autotune.families.config import Config
from autotune.families.plan import Template, override
from autotune.records.kernel_record import LAUNCH_MACROS, KernelSource
from autotune.tuning.pipeline import Compile
from autotune.user_kernels.checks import Places, check_variables
from autotune.user_kernels.definition import UserKernel
from autotune.user_kernels.source import Texts, unpacked


@contextmanager
def compiling(
    kernel: UserKernel, constants: Collection[str] | None = None
) -> Iterator[tuple[Compile, Callable[[Config], Places]]]:
    """Yields a compiler of a kernel's configurations, and a function to the folders of the source
    and the headers of one.

    The compiler raises a `UsageError` if the source changes a tuned macro, or if the kernel reads a
    variable that neither the source nor the `constants` fill; None leaves variables alone.
    """
    cache, lock = settings.cache_dir(), Lock()
    hashed = functools.cache(source_hash)  # of a thousand headers with CUB, for each configuration
    folders: dict[Texts, Places] = {}
    with ExitStack() as stack:

        def places(config: Config) -> Places:
            source = kernel.at(config).source
            with lock:
                if source.files not in folders:
                    folders[source.files] = stack.enter_context(unpacked(source, kernel.includes))
                return folders[source.files]

        def compile(template: Template, arch: str) -> Program | CompileFailure:
            config = kernel.config_of(template)
            folder, includes = places(config)
            source = hashed(template.source, directory=folder, includes=includes)
            outcome = compiler.compile(
                template, arch, cache=cache, sources=folder, includes=includes, source=source
            )
            if isinstance(outcome, CompileFailure):
                if change := override(outcome.log):
                    raise UsageError(
                        f"{template.kernel}: {change}; take its #define and #undef out of the "
                        "source, or put the #define between #ifndef and #endif"
                    )
            elif constants is not None:
                check_variables(outcome, kernel.at(config).source, (folder, includes), constants)
            return outcome

        yield compile, places


def with_compiler(kernel: UserKernel, arch: str) -> UserKernel:
    """The kernel with the compiler that compiles the first configuration that fulfils all
    constraints; the others get the same.

    Raises:
        UsageError: for a mistake of the call or the source that the compiler's messages reveal.
        MissingError: without a compiler, or without the headers or the host compiler that it needs.
    """
    if not kernel.space.configs:
        return kernel
    first = kernel.space.configs[0]
    failure = _failure(kernel, first, arch)
    if failure is None or not kernel.any_compiler or _PAST_FRONT_END.search(failure.log):
        return kernel
    host = replace(kernel, source=replace(kernel.source, compiler="nvcc"))
    if (version := nvcc.version()) is None:
        remedy = ""
        if _HOST.search(failure.log):
            remedy = f"NVRTC compiles no host code: {nvcc.REMEDY}"
        elif _CUDA.search(failure.reason):
            remedy = "for CUDA's headers run `pip install 'tile-autotune[kernels]'`"
        if remedy:
            raise MissingError(f"{kernel.name}: {failure.reason}; {remedy}")
        return kernel
    if _failure(host, first, arch) is not None and not _HOST.search(failure.log):
        return kernel
    settings.warn_once(f"{kernel.name} is compiled by {version}; NVRTC: {failure.reason}")
    return host


def _failure(kernel: UserKernel, config: Config, arch: str) -> CompileFailure | None:
    with compiling(kernel) as (compile, _):
        for place, step in enumerate(kernel.steps):
            outcome = compile(kernel.template(config, place), arch)
            if isinstance(outcome, CompileFailure):
                source = step.of(kernel.at(config).source)
                if mistake := mistake_in(source, kernel.parameters, outcome.log):
                    raise UsageError(f"{step.name}: {mistake}")
                return outcome
    return None


_PAST_FRONT_END = re.compile(
    r"\bptxas\b.*(error|fatal)|static assertion failed|was killed|was stopped"
)
"""Failures that another compiler shares."""

_HOST = re.compile(
    r'open source file "([a-z_]+|sys/\w+\.h|(std\w+|assert|ctype|errno|float|inttypes|limits|math|'
    r'string|time|unistd)\.h)"|not allowed in JIT mode|unrecognized option'
)
"""Errors of NVRTC that a host compiler does not make."""

_CUDA = re.compile(
    r'open source file "(cooperative_groups|mma|cuda|cu[A-Z]|crt/|cub/|thrust/|nv/|cuda/|vector_)'
)
"""Headers of CUDA."""


def mistake_in(source: KernelSource, parameters: Collection[str], log: str) -> str | None:
    """The mistake of a call that the compiler's messages reveal, and its remedy."""
    unknown = re.findall(r'identifier "(\w+)" is undefined', log)
    forgotten = [name for name in unknown if name in (*parameters, *LAUNCH_MACROS)]
    if forgotten and not source.defines:
        return (
            f"unknown identifier {forgotten[0]} is a parameter: set "
            "compile=Compilation(defines=True)"
        )
    if not re.search(rf"^(__nv_name_map|{nvcc.NAME})\(", log, re.MULTILINE):
        return None
    declared = [kernel for _, text in source.files for kernel in declarations(text)]
    own = [kernel for kernel in declared if kernel.name == source.name]
    if not own and (declared or source.name in unknown):
        names = ", ".join(dict.fromkeys(kernel.name for kernel in declared))
        return f"the source has no such kernel; it has {names or 'none outside macros'}"
    if len(own) > 1:
        forms = ", ".join(f"'{kernel.name}{kernel.signature}'" for kernel in own)
        return f"the kernel is overloaded; name one with its signature, such as {forms}"
    if own and not own[0].template and "<" in source.form:
        return (
            "the kernel is not a template; set compile=Compilation(defines=True) if the parameters "
            f"are macros, or name it '{source.name}<>' if it takes none"
        )
    return None


class Declaration(NamedTuple):
    """A kernel in a source: its qualified name, its signature, and whether it is a template."""

    name: str
    signature: str
    template: bool


_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_NESTED = r"\((?:[^(){};]|\((?:[^(){};]|\([^(){};]*\))*\))*\)"
_SCOPE = re.compile(
    r"(?:\bnamespace\s+(?P<namespace>[\w:]+)\s*)?(?P<open>\{)|(?P<close>\})"
    rf"|\b__global__\b(?:[^(){{}};]|\b__\w+__\s*{_NESTED})*?"
    rf"\b(?P<kernel>(?!__)\w+)\s*(?P<signature>{_NESTED})\s*(?=[{{;])"
)


def declarations(text: str) -> list[Declaration]:
    """The kernels that a text declares outside macros; unnamed namespaces are left out of names."""
    code, scopes = _NO_CODE.sub(" ", text), list[str | None]()
    declared: dict[Declaration, None] = {}
    for match in _SCOPE.finditer(code):
        if match["open"]:
            scopes.append(match["namespace"])
        elif match["close"]:
            del scopes[-1:]
        else:
            begin = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
            name = "::".join([*filter(None, scopes), match["kernel"]])
            signature = " ".join(match["signature"].split())
            template = "template" in code[begin : match.start()]
            declared[Declaration(name, signature, template)] = None
    return list(declared)
