"""An export as JSON: its kernels, and the launch plan of each gemm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256

from autotune.cuda.program import Program
from autotune.export.library import ExportedGemm, ExportedLibrary, FallbackKernel
from autotune.export.manifest import MADE_BY
from autotune.export.portable import ptx_file
from autotune.families.plan import Argument, Launch, LaunchPlan, Struct, TensorMap
from autotune.version import __version__

SCHEMA = 1


def document(library: ExportedLibrary, files: Mapping[str, str]) -> dict[str, object]:
    """A library without its machine code. `files` has the names of the kernels' own files, by the
    key of the program."""
    return {
        "schema": SCHEMA,
        "made_by": f"{MADE_BY}{__version__}",
        "name": library.name,
        "counters": library.counters,
        "devices": [device.to_json() for device in library.devices],
        "kernels": [
            _kernel(program, files.get(program.key)) | ptx_json(program, library.ptx, files)
            for program in library.programs.values()
        ],
        "products": [_gemm(gemm) for gemm in library.gemms],
        "general": [_fallback(fallback) for fallback in library.fallbacks],
    }


def plan_json(plan: LaunchPlan, programs: tuple[Program, ...]) -> dict[str, object]:
    """A launch plan, in which each launch names the key of its kernel."""
    return {
        "workspace": plan.workspace,
        "counters": plan.counters,
        "product": plan.product,
        "launches": [
            launch_json(launch, program)
            for launch, program in zip(plan.launches, programs, strict=True)
        ],
    }


def _kernel(program: Program, file: str | None) -> dict[str, object]:
    template = program.template
    return {
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
        **({} if file is None else {"file": file}),
    }


def ptx_json(
    program: Program, ptx: Mapping[str, bytes], files: Mapping[str, str]
) -> dict[str, object]:
    """The JSON of a program's PTX: its SHA-256, and its file where the cubin has one."""
    text = ptx.get(program.key)
    if text is None:
        return {}
    file = files.get(program.key)
    name = {} if file is None else {"ptx_file": ptx_file(file)}
    return {"ptx_sha256": sha256(text).hexdigest(), **name}


def _gemm(gemm: ExportedGemm) -> dict[str, object]:
    answer = gemm.answer
    return {
        "problem": str(gemm.problem),
        "device": gemm.device.name,
        "how": answer.how,
        "objective": str(answer.objective),
        "evidence": answer.evidence,
        "time_us": answer.time_us,
        "regret": answer.expected_loss,
        "vendor_faster": answer.vendor,
        "note": answer.note,
        "config": str(answer.config),
        "alignment": asdict(gemm.alignment),
        "plan": plan_json(gemm.plan, gemm.programs),
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
        "type": argument.type,
        "value": asdict(value) if isinstance(value, TensorMap) else value,
    }
