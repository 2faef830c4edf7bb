"""autotune: an occupancy and tile-size autotuner for CUDA matrix multiplication.

    autotune.tune("4096x4096x4096:bf16")       searches the fastest kernel and records it
    autotune.tune("1..512x4096x4096")          the same for a range of sizes
    autotune.tune(shapes, seconds=600)         the same for all shapes of a model
    autotune.best(4096, 4096, 4096)            the record of a problem
    autotune.choose(300, 4096, 4096)           what would run, tuned or not, and why
    autotune.list_records()                    everything that the cache has recorded
    autotune.table(record)                     a record or an answer with all its facts
    autotune.matmul(a, b)                      runs it on PyTorch, CuPy or PyCUDA arrays
    autotune.quantize(x, "e4m3", "row")        the same arrays in 8 bits, with scales
    autotune.interleave(gate, up)              the weights of SwiGLU as one
    autotune.kernel(4096, 4096, 4096)          one problem's kernel, ready to launch
    autotune.warmup(["64x4096x4096", ...])     loads the kernels of a program
    autotune.fingerprint()                     a hash of what would run, to compare machines
    with autotune.policy(cold=True): ...       what the calls of a block may do
    autotune.export.write(shapes, folder)      writes a C library of recorded kernels
    autotune.torch.patch(model)                runs recorded kernels in a PyTorch model
    autotune.tune_kernel(source, name, ...)    tunes your own CUDA kernel
    autotune.kernel_occupancy(source, ...)     occupancy of its configurations; needs no GPU
    autotune.device.find("h100")               limits of a GPU
    autotune.occupancy.occupancy(device, ...)  resident blocks of a kernel

Importing the package imports nothing else; each name is imported where it is first used.
"""

TYPE_CHECKING = False  # `typing` takes longer to import than everything else here
if TYPE_CHECKING:
    from autotune import device, errors, export, occupancy, roofline
    from autotune import torch as torch
    from autotune.api.kernels import best_kernel, kernel_occupancy, tune_kernel
    from autotune.api.lookups import best, choose, fingerprint, list_records, table
    from autotune.api.matmul import interleave, kernel, matmul, policy, quantize, warmup
    from autotune.api.shapes import Shapes
    from autotune.api.tune import tune
    from autotune.cuda.textures import Texture
    from autotune.device import Device
    from autotune.families.config import Config
    from autotune.problem import Problem
    from autotune.records import KernelRecord, Record
    from autotune.runtime import UntunedWarning
    from autotune.settings import Policy
    from autotune.tuning.options import Search
    from autotune.user_kernels.results import Verification
    from autotune.user_kernels.source import Compilation
    from autotune.user_kernels.steps import Scratch, Step
    from autotune.version import __version__ as __version__

__all__ = [
    "Compilation",
    "Config",
    "Device",
    "KernelRecord",
    "Policy",
    "Problem",
    "Record",
    "Scratch",
    "Search",
    "Shapes",
    "Step",
    "Texture",
    "UntunedWarning",
    "Verification",
    "best",
    "best_kernel",
    "choose",
    "device",
    "errors",
    "export",
    "fingerprint",
    "interleave",
    "kernel",
    "kernel_occupancy",
    "list_records",
    "matmul",
    "occupancy",
    "policy",
    "quantize",
    "roofline",
    "table",
    "tune",
    "tune_kernel",
    "warmup",
]

# The names of each module.
_HOMES = {
    name: module
    for module, names in {
        "api.kernels": ("best_kernel", "kernel_occupancy", "tune_kernel"),
        "api.lookups": ("best", "choose", "fingerprint", "list_records", "table"),
        "api.matmul": ("interleave", "kernel", "matmul", "policy", "quantize", "warmup"),
        "api.shapes": ("Shapes",),
        "api.tune": ("tune",),
        "cuda.textures": ("Texture",),
        "device": ("Device",),
        "families.config": ("Config",),
        "problem": ("Problem",),
        "records": ("KernelRecord", "Record"),
        "runtime": ("UntunedWarning",),
        "settings": ("Policy",),
        "tuning.options": ("Search",),
        "user_kernels.results": ("Verification",),
        "user_kernels.source": ("Compilation",),
        "user_kernels.steps": ("Scratch", "Step"),
        "version": ("__version__",),
    }.items()
    for name in names
}

# Names that are modules. `torch` is not in `__all__`, as PyTorch may not be installed.
_MODULES = {"device", "errors", "export", "occupancy", "records", "roofline", "torch"}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Stored, so that only the first use comes here.
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
