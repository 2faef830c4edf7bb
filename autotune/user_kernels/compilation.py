"""The compiler of a user kernel, chosen once, and mistakes of a call that it reveals.

NVRTC comes first, as it needs no toolkit. It compiles no host code, so a file with `main` or
`<cstdio>` goes to nvcc. The compiler reports the signature, which the arguments of a call have to
fit. A variable that nobody fills counts as zeros, and a result of zeros is verified like any other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np

from autotune import settings
from autotune.cuda import compiler, nvcc, symbols
from autotune.cuda.program import CompileFailure, Program, source_hash
from autotune.cuda.textures import Texture
from autotune.errors import MissingError, UsageError
from autotune.families.config import Config
from autotune.families.plan import Template, override
from autotune.records.kernel_record import LAUNCH_MACROS, KernelSource
from autotune.tuning.pipeline import Compile
from autotune.user_kernels.definition import UserKernel
from autotune.user_kernels.results import Array
from autotune.user_kernels.source import Texts, unpacked

Places = tuple[Path, tuple[Path, ...]]
"""The folder of a source, and the folders of headers (`unpacked`)."""


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


OTHER, FLOATING, WHOLE, POINTER = range(4)

WORDS = {OTHER: "a value", FLOATING: "a floating-point number", WHOLE: "a whole number"}

# `Signature` is declared but never defined. The compiler's error message names the instance that it
# misses, and so the parameters' types, each as a number (see `ParameterType`).
QUERY = """
namespace autotune_signature {{
template <typename T> struct Plain {{ static const int kind = 0, size = sizeof(T); }};
template <> struct Plain<void> {{ static const int kind = 0, size = 0; }};
template <typename T> struct Plain<const T> : Plain<T> {{}};
template <typename T> struct Plain<volatile T> : Plain<T> {{}};
template <typename T> struct Plain<const volatile T> : Plain<T> {{}};
#define AUTOTUNE_PLAIN(TYPE, KIND) \\
    template <> struct Plain<TYPE> {{ static const int kind = KIND, size = sizeof(TYPE); }};
AUTOTUNE_PLAIN(float, 1) AUTOTUNE_PLAIN(double, 1) AUTOTUNE_PLAIN(bool, 2) AUTOTUNE_PLAIN(char, 2)
AUTOTUNE_PLAIN(signed char, 2) AUTOTUNE_PLAIN(unsigned char, 2) AUTOTUNE_PLAIN(short, 2)
AUTOTUNE_PLAIN(unsigned short, 2) AUTOTUNE_PLAIN(int, 2) AUTOTUNE_PLAIN(unsigned, 2)
AUTOTUNE_PLAIN(long, 2) AUTOTUNE_PLAIN(unsigned long, 2) AUTOTUNE_PLAIN(long long, 2)
AUTOTUNE_PLAIN(unsigned long long, 2)
template <typename T> struct ParameterType {{
    static const long long facts = Plain<T>::kind * 1000000LL + Plain<T>::size;
}};
template <typename T> struct ParameterType<T*> {{
    static const long long facts = 3000000LL + Plain<T>::kind * 100000LL + Plain<T>::size;
}};
template <long long... Facts> struct Signature;
template <typename... P> Signature<ParameterType<P>::facts...> of(void (*)(P...));
static const int size = sizeof(of({address}));
template <typename T> struct Element {{ typedef T type; }};
template <typename T, size_t N> struct Element<T[N]> : Element<T> {{}};
template <int Place, long long Facts, long long Size> struct Variable;
{variables}
}}
"""

_VARIABLE_QUERY = """
static const int size{place} = sizeof(
    Variable<{place}, ParameterType<Element<decltype(::{name})>::type*>::facts, sizeof(::{name})>);
"""

_INSTANCE = re.compile(r"autotune_signature::Signature<([^>]*)>")

_VARIABLE_INSTANCE = re.compile(r"autotune_signature::Variable<(\d+), (\d+)L*, (\d+)L*>")


@dataclass(frozen=True)
class ParameterType:
    """The type of a kernel's parameter.

    Attributes:
        pointer: whether it is a pointer; the rest then describes what it points to.
        kind: OTHER, FLOATING or WHOLE.
        size: bytes; 0 for void.
    """

    pointer: bool
    kind: int
    size: int

    @classmethod
    def of(cls, facts: int) -> ParameterType:
        """The type that a number in the compiler's message stands for."""
        first, rest = divmod(facts, 1_000_000)
        return cls(True, *divmod(rest, 100_000)) if first == POINTER else cls(False, first, rest)

    def __str__(self) -> str:
        value = f"{WORDS[self.kind]} of {self.size} bytes"
        if not self.pointer:
            return value
        return f"a pointer to {value}" if self.size else "a pointer"


def check_signature(
    kernel: UserKernel,
    config: Config,
    arguments: Sequence[object],
    arch: str,
    places: Places,
    contents: Mapping[str, Array],
) -> None:
    """Refuses arguments that an instance of the kernel does not take, and contents that do not fit
    their `__constant__` variable.

    An instance that does not compile is not checked: its trial reports the compiler's message.

    Raises:
        UsageError: for another number of arguments, or another type of one of them.
        MissingError: without a compiler.
    """
    log = _answer(kernel, config, arch, places, tuple(contents))
    for place, facts, size in _VARIABLE_INSTANCE.findall(log):
        name, array = [*contents.items()][int(place)]
        element = ParameterType.of(int(facts))
        wanted = f"the variable holds {replace(element, pointer=False)}"
        _check_type(f"constant {name}", array, element, wanted)
        if array.nbytes > int(size):
            raise UsageError(
                f"constant {name} is given {array.nbytes} bytes, the variable has {size}"
            )
    if (match := _INSTANCE.search(log)) is None:
        return
    parameters = [ParameterType.of(int(facts)) for facts in re.findall(r"-?\d+", match[1])]
    if len(parameters) != len(arguments):
        raise UsageError(
            f"{kernel.name} takes {len(parameters)} arguments ({', '.join(map(str, parameters))}), "
            f"{len(arguments)} are given"
        )
    for place, (argument, parameter) in enumerate(zip(arguments, parameters, strict=True)):
        _check_type(
            f"argument {place}", argument, parameter, f"{kernel.name} takes {parameter} there"
        )


def _check_type(where: str, value: object, parameter: ParameterType, wanted: str) -> None:
    """Refuses an argument that does not fit a parameter, which is `wanted` in the message."""
    # A texture object is a handle of 64 bits.
    number = np.uint64() if isinstance(value, Texture) else value
    assert isinstance(number, np.ndarray | np.generic)
    if _fits(number, parameter):
        return
    dtype, array = number.dtype, "an array of " if isinstance(number, np.ndarray) else ""
    kind = "structures" if dtype.names else "a texture object" if number is not value else dtype
    raise UsageError(
        f"{where} is {array}{kind} ({dtype.itemsize} bytes); {wanted}; give the NumPy type of that"
        + (", such as numpy.dtype(fields, align=True)" if dtype.names else "")
    )


def _answer(
    kernel: UserKernel, config: Config, arch: str, places: Places, names: Sequence[str]
) -> str:
    template, (folder, folders) = kernel.template(config), places
    variables = "".join(
        _VARIABLE_QUERY.format(place=place, name=name) for place, name in enumerate(names)
    )
    query = QUERY.format(address=template.address, variables=variables)
    path = folder / kernel.source.file
    file = path.with_name(f"signature-of-{path.name}")
    file.write_text(f"{kernel.source.text}\n{query}", encoding="utf-8")
    asking = replace(template, source=file.relative_to(folder).as_posix())
    return compiler.compile(asking, arch, cache=None, sources=folder, includes=folders).log


def _fits(argument: np.ndarray | np.generic, parameter: ParameterType) -> bool:
    """Whether a kernel's parameter accepts a NumPy array or number. A pointer to vectors or
    structures accepts any array of numbers, and an array of structures of its size."""
    dtype, pointer = argument.dtype, parameter.pointer
    size, kind = dtype.itemsize, FLOATING if dtype.kind in "fc" else WHOLE
    if isinstance(argument, np.ndarray) != pointer:
        return False
    if parameter.kind == OTHER:
        whole = pointer and (dtype.names is None or not parameter.size)
        return whole or size == parameter.size
    if pointer and parameter.size == 1:
        return True
    if dtype.kind == "V" or (dtype.kind == "c" and not pointer):
        return False
    if dtype.kind == "c":
        size //= 2
    return kind == parameter.kind and size == parameter.size


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

_DECLARED = re.compile(r"\b__constant__\b[^;={]*?(\w+)\s*(?:\[[^]]*\]\s*)*[;={,]")

_INITIALISED = r"\b__constant__\b[^;{{}}]*\b{name}\s*(?:\[[^]]*\]\s*)*(?:=(?!=)|\{{)"


def check_variables(
    program: Program, source: KernelSource, places: Places, filled: Collection[str]
) -> None:
    """Refuses a kernel that reads a variable which nothing fills, and a `filled` name that is no
    variable of the source.

    An explicit initialiser of zeros looks like none to the compiler, so that the text decides.

    Raises:
        UsageError: for such a variable.
    """
    kernel, texts = program.template.kernel, [_COMMENT.sub("", text) for _, text in source.files]
    names = {variable.name for variable in symbols.constants(program.cubin)}
    declared = {name for text in texts for name in _DECLARED.findall(text)}
    for name in filled:
        if name not in names and name.rpartition("::")[2] not in declared:
            listed = ", ".join(sorted(names | declared)) or "none"
            raise UsageError(f"the source of {kernel} has no __constant__ {name}; it has {listed}")

    def initialised(name: str) -> bool:
        pattern = re.compile(_INITIALISED.format(name=re.escape(name.rpartition("::")[2])))
        return any(map(pattern.search, texts))

    missing = {name for name in names if name not in filled and not initialised(name)}
    if not missing:
        return
    folder, includes = places
    ptx = compiler.ptx(
        program.template, program.arch, sources=folder, includes=includes, symbol=program.symbol
    )
    for name in [] if isinstance(ptx, CompileFailure) else symbols.unfilled(ptx, program.symbol):
        if name in missing:
            raise UsageError(
                f"{kernel} reads __constant__ {name}, which nothing fills before a launch, so that "
                f'it would count as zeros; give its contents, constants={{"{name}": array}}, or '
                "initialise it in the source"
            )
