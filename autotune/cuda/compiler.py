"""Compiles one instance of a kernel template, through the program cache."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from autotune import settings
from autotune.cuda import nvcc, nvrtc, program
from autotune.cuda.bindings import INSTALL
from autotune.cuda.cache import FORMAT, cached, find_installed, kept, target_of
from autotune.cuda.program import CompileFailure, Program, source_hash, source_hashes
from autotune.cuda.symbols import as_in_cubin
from autotune.errors import FrozenError, MissingError
from autotune.families.plan import Template


def compile(
    template: Template,
    arch: str,
    *,
    cache: Path | None,
    sources: Path | None = None,
    includes: Sequence[Path] | None = None,
    source: str | None = None,
    with_installed: bool = False,
    here: bool = False,
) -> Program | CompileFailure:
    """Compiles one instance of a kernel template for an architecture.

    Performance losses that ptxas reports count as failures, because the timed kernel would not be
    the one that was written: wgmma serialised by inserted waits, `setmaxnreg` without effect.
    Thread-safe; threads compile in parallel.

    Args:
        template: kernel to compile.
        arch: the target, such as `sm_90`. A template that needs instructions specific to that
            architecture is compiled for `sm_90a`.
        cache: the cache directory (`settings.cache_dir()`); None keeps nothing.
        sources: the folder of the CUDA sources; None takes the package's.
        includes: folders searched for headers; None takes `include` of the sources.
        source: the `source_hash`, if it is known.
        with_installed: whether a program that came with the package serves; that needs no compiler.
        here: whether this process compiles, where a helper process would start first. Only for the
            package's own kernels: no signal ends such a compilation, and no limit.

    Raises:
        MissingError: if there is no compiler.
        FrozenError: in the frozen mode, if the cache does not have the program.
    """
    if with_installed:
        with suppress(OSError):
            if (installed := find_installed(template, arch)) is not None:
                return installed
    target = target_of(template, arch)
    directory = sources or settings.source_dir()
    folders = (directory / "include",) if includes is None else tuple(includes)
    try:
        source = source or source_hash(template.source, directory=directory, includes=folders)
    except OSError as error:
        return CompileFailure(template, target, f"{error.filename}: {error.strerror}", "")
    key = _key(source, template, target)
    if settings.mode().frozen:
        earlier = None if cache is None else kept(cache, key, template, target)
        if earlier is None:
            raise FrozenError(
                f"{template.label} is not compiled for {target}, and the mode is frozen; run this "
                "once, or autotune.warmup, where the mode is not"
            )
        return earlier

    def build() -> Program | CompileFailure:
        if template.compiler == "nvcc":
            output = nvcc.build(template, target, directory, folders)
        else:
            output = nvrtc.build(template, target, directory, folders, here=here)
        cubin, log, symbol = output
        return _outcome(template, target, cubin, log.replace(f"{directory}/", ""), symbol, key)

    return build() if cache is None else cached(cache, key, template, target, build)


def ptx(
    template: Template,
    target: str,
    *,
    sources: Path | None = None,
    includes: Sequence[Path] | None = None,
    symbol: str = "",
) -> bytes | CompileFailure:
    """Compiles one instance of a kernel template to PTX, uncached.

    Args:
        template: kernel to compile.
        target: the exact target, such as `sm_90a`.
        sources: the folder of the CUDA sources; None takes the package's.
        includes: folders searched for headers; None takes `include` of the sources.
        symbol: the kernel's name in a cubin. An unnamed namespace is spelt as there, which differs
            from one compilation to the next.

    Raises:
        MissingError: if there is no compiler.
        FrozenError: in the frozen mode.
    """
    settings.refuse_frozen(f"cannot compile {template.label} to PTX")
    compiler_version(template.compiler)
    directory = sources or settings.source_dir()
    folders = (directory / "include",) if includes is None else tuple(includes)
    write = nvcc.ptx if template.compiler == "nvcc" else nvrtc.ptx
    text, log, _ = write(template, target, directory, folders)
    if text is None:
        return CompileFailure(template, target, _first_error(log), log)
    return as_in_cubin(text, symbol)


def named_keys(templates: Iterable[Template], arch: str) -> dict[Template, str]:
    """The cache key of each of the package's templates, as compiled for an architecture.

    Raises:
        MissingError: if there is no compiler.
        OSError: if a source cannot be read.
    """
    wanted = dict.fromkeys(templates)
    hashes = source_hashes({item.source: (item.source,) for item in wanted})
    return {item: _key(hashes[item.source], item, target_of(item, arch)) for item in wanted}


def stop_compiling(threads: Collection[int]) -> None:
    """Ends the compilations in helper processes that threads, given by their identifiers, wait
    for; each counts as failed."""
    nvrtc.SHARED.stop(threads)
    nvcc.stop(threads)


def compiler_version(compiler: str | None = None) -> str:
    """The compiler that `compile` uses, such as `NVRTC 13.0`.

    Args:
        compiler: that of a template, such as `nvcc`.

    Raises:
        MissingError: if there is none.
    """
    if compiler == "nvcc":
        if (version := nvcc.version()) is not None:
            return version
        raise MissingError(f"nvcc is not installed; {nvcc.REMEDY}")
    if (version := nvrtc.version()) is not None:
        return version
    remedy = nvrtc.mismatch() or INSTALL
    raise MissingError(f"no CUDA compiler: NVRTC is not installed; {remedy}")


def _key(source: str, template: Template, target: str) -> str:
    """The cache key: a hash of all that determines the program. `source` is its source hash."""
    version = compiler_version(template.compiler)
    instance = template.declaration + template.expression
    options = nvrtc.OPTIONS if template.compiler is None else nvrtc.USER_OPTIONS
    parts: tuple[object, ...] = (FORMAT, source, instance, options, version, target)
    if template.macros or template.options:
        parts = (*parts, template.macros, template.options)
    return sha256(json.dumps(parts).encode()).hexdigest()


def _outcome(
    template: Template, arch: str, cubin: bytes | None, log: str, symbol: str, key: str
) -> Program | CompileFailure:
    version = compiler_version(template.compiler)
    if cubin is None:
        return CompileFailure(template, arch, _first_error(log), log)
    if (loss := program.loss(log)) is not None:
        return CompileFailure(template, arch, loss, log)
    usage = program.usage(log, symbol) if symbol else None
    if usage is None:
        reason = f"{version} names no single entry function {template.kernel} in its log"
        return CompileFailure(template, arch, reason, log)
    return Program(
        template=template,
        arch=arch,
        cubin=cubin,
        symbol=symbol,
        compiler=version,
        key=key,
        log=log,
        **usage,
    )


def _first_error(log: str) -> str:
    """The first line of a compiler log that mentions an error, else the first line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b", line)]
    return (errors or lines or ["the compiler failed without a message"])[0]
