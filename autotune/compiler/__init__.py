"""Kernel templates to cubins, through NVRTC and a content-addressed cache."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from autotune import settings
from autotune.compiler import nvcc, nvrtc, ptxas
from autotune.compiler.cache import FORMAT, cached
from autotune.compiler.program import CompileFailure, Program
from autotune.errors import MissingError
from autotune.families.plan import Template

__all__ = ["CompileFailure", "Program", "compile", "compiler_version", "keys", "ptx", "source_hash"]

_INCLUDE = re.compile(rb'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def compile(
    template: Template,
    arch: str,
    *,
    cache: Path | None,
    sources: Path | None = None,
    includes: Sequence[Path] | None = None,
) -> Program | CompileFailure:
    """Compiles one instance of a kernel template for `arch`, such as `sm_90`; for `sm_90a` if the
    template needs that architecture's own instructions.

    What ptxas makes slower than it was written, tensor cores that wait after each instruction and
    registers that are not shared out anew, counts as a failure: it measures something else.

    Many threads may compile at once: NVRTC works outside the interpreter's lock.

    Args:
        template: what to compile.
        arch: the target.
        cache: the cache directory (`settings.cache_dir()`); None keeps nothing.
        sources: the folder of the CUDA sources; None takes the package's.
        includes: folders in which headers are looked for; None takes `include` of the sources.

    Raises:
        MissingError: if there is no compiler.
    """
    version, tool = _toolchain()
    target = _target(template, arch)
    directory = sources or settings.source_dir()
    folders = (directory / "include",) if includes is None else tuple(includes)
    try:
        source = source_hash(template.source, directory=directory, includes=folders)
    except OSError as error:
        return CompileFailure(template, target, f"{error.filename}: {error.strerror}", "")
    key = _key(source, template, target)

    def build() -> Program | CompileFailure:
        cubin, log = tool.build(template, target, directory, folders)
        return _judge(template, target, cubin, log, version, key)

    return build() if cache is None else cached(cache, key, template, target, build)


def ptx(template: Template, target: str) -> bytes | CompileFailure:
    """One instance of a kernel template as PTX for `target`, such as `sm_90a`, uncached.

    Raises:
        MissingError: if there is no compiler.
    """
    _, tool = _toolchain()
    directory = settings.source_dir()
    text: bytes | None
    text, log = tool.ptx(template, target, directory, (directory / "include",))
    return CompileFailure(template, target, _first_error(log), log) if text is None else text


def keys(templates: Iterable[Template], arch: str) -> set[str]:
    """The names in the cache of what `compile` makes of templates of the package for `arch`.

    Raises:
        MissingError: if there is no compiler.
        OSError: if a source cannot be read.
    """
    wanted = set(templates)
    hashes = {source: source_hash(source) for source in {one.source for one in wanted}}
    return {_key(hashes[one.source], one, _target(one, arch)) for one in wanted}


def compiler_version() -> str:
    """The compiler that `compile` uses, such as `NVRTC 13.0`.

    Raises:
        MissingError: if there is none.
    """
    return _toolchain()[0]


def source_hash(
    *sources: str, directory: Path | None = None, includes: Sequence[Path] | None = None
) -> str:
    """SHA-256 over the named CUDA sources and every header that they reach in `includes`.

    Raises:
        OSError: if one of the sources cannot be read.
    """
    root = directory or settings.source_dir()
    folders = (root / "include",) if includes is None else includes
    pending = [(name, root / name) for name in sources]
    digests: dict[Path, tuple[str, str]] = {}
    while pending:
        name, path = pending.pop()
        if path not in digests:
            text = path.read_bytes()
            digests[path] = name, sha256(text).hexdigest()
            beside = () if path.parent == root else (path.parent,)
            for found in _INCLUDE.findall(text):
                pending += _header(found.decode(), (*beside, *folders))
    return sha256(json.dumps(sorted(digests.values())).encode()).hexdigest()


def _target(template: Template, arch: str) -> str:
    return f"{arch}a" if template.specific else arch


def _key(source: str, template: Template, target: str) -> str:
    """What names a program: all that changes it. `source` is the hash of the sources."""
    version, tool = _toolchain()
    parts = (FORMAT, source, template.expression, tool.OPTIONS, version, target)
    return sha256(json.dumps(parts).encode()).hexdigest()


def _header(name: str, folders: Sequence[Path]) -> list[tuple[str, Path]]:
    """The first of that name, as the compiler finds it, and what it is called in the hash."""
    places = (folder / name for folder in folders)
    found = [(f"{path.parent.name}/{path.name}", path) for path in places if path.is_file()]
    return found[:1]


def _toolchain() -> tuple[str, ModuleType]:
    for tool in (nvrtc, nvcc):
        if (version := tool.version()) is not None:
            return version, tool
    raise MissingError(
        "no CUDA compiler: neither NVRTC nor nvcc is here; run `pip install 'cuda-core[cu13]'`"
    )


def _judge(
    template: Template, arch: str, cubin: bytes | None, log: str, version: str, key: str
) -> Program | CompileFailure:
    if cubin is None:
        return CompileFailure(template, arch, _first_error(log), log)
    if (loss := ptxas.loss(log)) is not None:
        return CompileFailure(template, arch, loss, log)
    symbol = ptxas.symbol(log, template.kernel)
    usage = ptxas.usage(log, symbol) if symbol else None
    if symbol is None or usage is None:
        reason = f"{version} names no single entry function {template.kernel} in its log"
        return CompileFailure(template, arch, reason, log)
    return Program(
        template=template,
        arch=arch,
        cubin=cubin,
        symbol=symbol,
        registers=usage.registers,
        shared=usage.shared,
        local=usage.local,
        spills=usage.spills,
        barriers=usage.barriers,
        compiler=version,
        key=key,
        log=log,
    )


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b", line)]
    return (errors or lines or ["the compiler stopped without a word"])[0]
