"""Exports of user kernels: built with a C compiler, and run on the fake driver."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.command_line import own_machine, run
from support.exported_library import C11, CXX17, STRICT, environment_of
from support.paths import TESTS
from support.sample_records import H100
from support.sample_user_kernels import arguments, kernel, recorded

from autotune import export
from autotune.cuda.textures import Texture
from autotune.device import find
from autotune.errors import AutotuneError, NotFoundError, UsageError
from autotune.families.config import Config
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Store
from autotune.records.kernel_record import Geometry, KernelLaunch, KernelStep
from autotune.user_kernels.arguments import call_of

CALL = call_of("saxpy", arguments())
OTHER = KernelCall("saxpy", ("float32[64]", "float32[64]", "float32=2.5", "int32=64"))
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "saxpy.h"
int main(int count, char **words) {
    int status = saxpy%s((void *)0x100, (void *)0x200, 2.5f, 1000, (CUstream)7);
    (void)words;
    if (count > 1) status = saxpy%s((void *)0x300, (void *)0x200, 2.5f, 1000, (CUstream)7);
    fprintf(stderr, "status %%d %%d\\n", status, saxpy_driver_error());
    return status;
}
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    return Store(own_machine(monkeypatch, tmp_path))


def built(
    folder: Path,
    compiler: tuple[str, ...] = C11,
    calls: int = 1,
    rows: Mapping[str, str] | None = None,
    name: str = "saxpy",
) -> Path:
    """The caller of an exported kernel, and the fake driver; `rows` has the bytes of the arguments
    of each symbol."""
    (folder / "driver").mkdir()
    names = ["", ""] if calls == 1 else ["_0", "_1"]
    if name == "saxpy":
        (folder / "main.c").write_text(MAIN % (*names,))
    driver = folder / "driver" / "libcuda.so.1"
    source = TESTS / "export" / "fake_driver.c"
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", "-o", driver, source, "-lm", "-lpthread"], check=True
    )
    if rows is None:
        symbols = {str(program["symbol"]) for program in manifest(folder)["kernels"]}
        rows = dict.fromkeys(sorted(symbols), "8 8 4 4")
    lines = "".join(f"{symbol} 0 0 -1 {sizes}\n" for symbol, sizes in rows.items())
    (folder / "driver" / "kernels").write_text(lines)
    files = [folder / "main.c", folder / f"{name}.c"]
    links: list[str | Path] = ["-o", folder / "caller", "-ldl", "-lpthread"]
    subprocess.run([*compiler, *STRICT, f"-I{folder}", *files, *links], check=True)
    return folder / "caller"


def manifest(folder: Path) -> dict[str, list[dict[str, object]]]:
    data: dict[str, list[dict[str, object]]] = json.loads((folder / "saxpy.json").read_text())
    return data


def called(program: Path, *words: str, status: int = 0, **environment: str) -> list[str]:
    """The lines of the fake driver and the caller."""
    result = subprocess.run(
        [program, *words],
        check=False,
        capture_output=True,
        text=True,
        env=environment_of(program.parent, **environment),
    )
    assert result.returncode == status, result.stderr
    return result.stderr.splitlines()


@pytest.mark.parametrize("compiler", [C11, CXX17])
def test_exported_function_launches_what_was_tuned(
    store: Store, tmp_path: Path, compiler: tuple[str, ...]
) -> None:
    store.save(recorded())
    written = export.write_kernels(["saxpy"], tmp_path / "out")
    assert [path.name for path in written.files] == ["saxpy.h", "saxpy.c", "saxpy.json"]
    load, shared, launch, status = called(built(tmp_path / "out", compiler))
    symbol = written.library.kernels[0].programs[0].symbol
    assert (load[:8], shared, status) == (
        "load \x7fELF\x02"[:8],
        f"shared {symbol} 512 0",
        "status 0 0",
    )
    values = struct.pack("<Q", 0x100), struct.pack("<Q", 0x200), struct.pack("<f", 2.5)
    argument = ",".join(part.hex() for part in (*values, struct.pack("<i", 1000)))
    assert launch == f"launch {symbol} 4 1 1 256 1 1 512 7 0 {argument},"


def test_function_chooses_by_device_and_loads_once(store: Store, tmp_path: Path) -> None:
    store.save(recorded())
    store.save(recorded(device=find("h200"), threads=128))
    export.write_kernels(["saxpy"], tmp_path / "out")
    program = built(tmp_path / "out")
    lines = called(program, "twice", FAKE_CUDA_DEVICE="NVIDIA H200;9;0;132")
    assert [line.split()[0] for line in lines] == ["load", "shared", "launch", "launch", "status"]
    assert lines[2].split()[5] == "128"
    assert called(program, FAKE_CUDA_DEVICE="NVIDIA GH200 480GB;9;0;132")[2].startswith("launch")
    assert called(program, status=3, FAKE_CUDA_DEVICE="NVIDIA L4;8;9;58") == ["status 3 0"]


def test_every_error_is_a_status(store: Store, tmp_path: Path) -> None:
    store.save(recorded())
    export.write_kernels(["saxpy"], tmp_path / "out")
    program = built(tmp_path / "out")
    for environment, status, error in (
        ({"FAKE_CUDA_CONTEXT": ""}, 2, 201),
        ({"FAKE_CUDA_FAIL": "cuLibraryLoadData=200"}, 4, 200),
        ({"FAKE_CUDA_FAIL": "cuLibraryGetKernel=500"}, 4, 500),
        ({"FAKE_CUDA_FAIL": "cuLaunchKernelEx=701"}, 5, 701),
        ({"LD_LIBRARY_PATH": "/nowhere"}, 1, 0),
    ):
        lines = called(program, status=status, **environment)
        assert lines[-1] == f"status {status} {error}"


def test_each_call_has_its_function(store: Store, tmp_path: Path) -> None:
    store.save(recorded())
    store.save(recorded(OTHER, threads=64))
    written = export.write_kernels(["saxpy"], tmp_path / "out", "saxpy")
    assert written.library.functions == {CALL: "saxpy_0", OTHER: "saxpy_1"}
    lines = called(built(tmp_path / "out", calls=2), "twice")
    assert [line.split()[5] for line in lines if line.startswith("launch")] == ["256", "64"]


def test_header_of_values_compiles(store: Store, tmp_path: Path) -> None:
    store.save(recorded())
    store.save(recorded(device=find("h200"), threads=128))
    store.save(recorded(OTHER, threads=64))
    export.write_kernels(["saxpy"], tmp_path / "out", format="h")
    text = '#include "saxpy.h"\nint threads = THREADS * SAXPY_GRID_X + SAXPY_SHARED;\n'
    (tmp_path / "out" / "use.c").write_text(text)

    def threads(*flags: str) -> str:
        command = [*C11, "-E", "-P", *flags, str(tmp_path / "out" / "use.c")]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        return result.stdout.strip()

    assert threads("-DCALL=0") == "int threads = 256 * 4 + 512;"
    assert threads("-DCALL=0", "-DTARGET_NVIDIA_H200") == "int threads = 128 * 4 + 512;"
    assert threads("-DCALL=1") == "int threads = 64 * 4 + 512;"
    with pytest.raises(subprocess.CalledProcessError):
        threads()


def test_cubins_are_named_in_the_json(store: Store, tmp_path: Path) -> None:
    store.save(recorded())
    written = export.write_kernels(["saxpy"], tmp_path / "out", format="cubin")
    assert [path.name for path in written.files] == ["saxpy-0-sm_90.cubin", "saxpy.json"]
    assert written.files[0].read_bytes() == written.library.kernels[0].programs[0].cubin
    (program,), (call,) = manifest(tmp_path / "out")["kernels"], manifest(tmp_path / "out")["calls"]
    assert program["file"] == "saxpy-0-sm_90.cubin"
    assert call["params"] == {"THREADS": 256, "EACH": 1}
    launch = call["launch"]
    assert isinstance(launch, dict)
    assert (launch["grid"], launch["block"], launch["shared"]) == ([4, 1, 1], [256, 1, 1], 512)
    assert launch["kernel"] == program["key"]


def test_command_line_exports_kernels(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(recorded())
    out = str(tmp_path / "out")
    assert run("export", "saxpy", "--out", out, "--name", "mine", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert [Path(path).name for path in data["files"]] == ["mine.h", "mine.c", "mine.json"]
    assert data["calls"][0]["function"] == "mine"
    assert run("export", "saxpy", "--out", out, "--device", "l4") == 3
    assert "no kernel 'saxpy' is recorded on l4" in capsys.readouterr().err
    assert run("export", "saxpy", "64x64x64", "--out", out) == 2
    assert "go into exports of their own" in capsys.readouterr().err


def test_export_that_cannot_be_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no kernel 'saxpy' is recorded in "):
        export.write_kernels(["saxpy"], tmp_path)
    store.save(recorded())
    with pytest.raises(UsageError, match="user kernels have no format 'ptx'; give one of c, h,"):
        export.write_kernels(["saxpy"], tmp_path, format="ptx")
    plain = replace(recorded().entries[0], launch=None)
    store.save(replace(recorded(OTHER), entries=(plain,)))
    with pytest.raises(NotFoundError, match="has no source"):
        export.write_kernels([str(OTHER)], tmp_path)
    broken = replace(kernel().source, files=(("saxpy.cu", "nothing"),))
    launch = replace(recorded().best.launchable(), source=broken)
    store.save(replace(recorded(), entries=(replace(recorded().best, launch=launch),)))
    with pytest.raises(AutotuneError, match=r"does not compile for sm_90: .*error"):
        export.write_kernels([str(CALL)], tmp_path)


def test_later_gpu_runs_a_user_kernel_from_ptx(store: Store, tmp_path: Path) -> None:
    store.save(recorded())
    export.write_kernels(["saxpy"], tmp_path / "out", ptx=True)
    program = built(tmp_path / "out")
    lines = called(program, "twice", FAKE_CUDA_DEVICE="NVIDIA B200;10;0;148")
    assert [line.split()[0] for line in lines] == ["load", "shared", "launch", "launch", "status"]
    assert lines[0] == "load //"
    assert called(program, status=3, FAKE_CUDA_DEVICE="NVIDIA L4;8;9;58") == ["status 3 0"]
    with pytest.raises(UsageError, match="format 'h' takes no PTX; give c or cubin"):
        export.write_kernels(["saxpy"], tmp_path / "out", format="h", ptx=True)


@pytest.mark.parametrize("compiler", [C11, CXX17])
def test_structures_are_pointers_to_their_bytes(
    store: Store, tmp_path: Path, compiler: tuple[str, ...]
) -> None:
    point = np.zeros((), [("tag", "i1"), ("at", "f8")])[()]
    texture = Texture(np.zeros(4, np.float32))
    store.save(recorded(call_of("saxpy", [point, np.complex64(1j), texture])))
    export.write_kernels(["saxpy"], tmp_path)
    header, source = ((tmp_path / f"saxpy.{end}").read_text() for end in "hc")
    parameters = "const void *argument0, const void *argument1, uint64_t argument2, "
    assert f"int saxpy({parameters}CUstream stream);" in header
    assert "arguments0[] = {(void *)argument0, (void *)argument1, &argument2};" in source
    output = "-o", tmp_path / "saxpy.o"
    subprocess.run([*compiler, *STRICT, "-c", tmp_path / "saxpy.c", *output], check=True)


def test_library_does_not_fill_constants(store: Store, tmp_path: Path) -> None:
    store.save(recorded(call_of("saxpy", arguments(), {"w": np.zeros(3)})))
    with pytest.raises(UsageError, match=r"w:float64\[3\]\) has constants, which format c cannot"):
        export.write_kernels(["saxpy"], tmp_path)
    export.write_kernels(["saxpy"], tmp_path, format="cubin")
    assert manifest(tmp_path)["calls"][0]["constants"] == ["w:float64[3]"]


def test_damaged_user_kernel_is_never_loaded(store: Store, tmp_path: Path) -> None:
    store.save(recorded())
    export.write_kernels(["saxpy"], tmp_path / "out")
    source = tmp_path / "out" / "saxpy.c"
    before, mark, after = source.read_text().partition("CUBIN_0[] = {\n0x")
    source.write_text(f"{before}{mark}{'1' if after[0] != '1' else '2'}{after[1:]}")
    assert called(built(tmp_path / "out"), status=7) == ["status 7 0"]


@pytest.mark.parametrize("value", ["system(1)", "/*x", "a(b)"])
def test_header_of_values_takes_no_expression(value: str, store: Store, tmp_path: Path) -> None:
    own = recorded().entries[0]
    config = Config.of("saxpy", {"THREADS": 256, "EACH": 1, "printf": value})
    store.save(replace(recorded(), entries=(replace(own, config=config),)))
    with pytest.raises(
        AutotuneError, match=r"printf=.* is not a macro for other programs: format h"
    ):
        export.write_kernels(["saxpy"], tmp_path / "out", format="h")


def test_names_of_devices_stay_in_their_comments(store: Store, tmp_path: Path) -> None:
    evil = replace(H100, name="Evil */ int evil = 1; /* \\")
    for device in (H100, evil):
        store.save(recorded(device=device))
    for form in ("c", "h"):
        export.write_kernels(["saxpy"], tmp_path / form, format=form)
        text = (tmp_path / form / "saxpy.h").read_text()
        (tmp_path / "x.c").write_text(f"{text}\nint last;\n")
        command = ["gcc", "-E", "-P", str(tmp_path / "x.c")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "int last;" in done.stdout
        assert "evil" not in done.stdout


# Several kernels

TWO = """
template <int THREADS> __global__ void fill(float* y, int n) { y[threadIdx.x] = n; }
template <int THREADS> __global__ void scale(const float* x, float* y) {
    y[threadIdx.x] *= x[threadIdx.x];
}
"""
TWO_CALL = KernelCall("fill", ("float32[64]", "float32[64]", "int32=64"))
TWO_MAIN = """
#include <stdio.h>
#include "fill.h"
int main(void) {
    int status = fill((void *)0x100, (void *)0x200, 64, (CUstream)7);
    fprintf(stderr, "status %d %d\\n", status, fill_driver_error());
    return status;
}
"""


def of_steps(call: KernelCall = TWO_CALL, own: tuple[tuple[int, int], ...] = ()) -> KernelRecord:
    steps = (
        KernelStep("fill", "fill<{THREADS}>", (0, 2)),
        KernelStep("scale", "scale<{THREADS}>", (1, 0), cooperative=True),
    )
    config = Config.of("fill", {"THREADS": 64})
    source = replace(
        kernel().source, name="fill", form="fill<{THREADS}>", file="k.cu", files=(("k.cu", TWO),)
    )
    geometries = Geometry((2, 1, 1), (64, 1, 1), 0), Geometry((1, 1, 1), (64, 1, 1), 16)
    plain = recorded(call)
    launch = KernelLaunch(source, call, geometries, steps, own)
    return replace(plain, entries=(replace(plain.entries[0], config=config, launch=launch),))


def test_exported_function_launches_all_steps_in_order(store: Store, tmp_path: Path) -> None:
    store.save(of_steps())
    export.write_kernels(["fill"], tmp_path / "out")
    data = json.loads((tmp_path / "out" / "fill.json").read_text())
    fill, scale = (program["symbol"] for program in data["kernels"])
    (tmp_path / "out" / "main.c").write_text(TWO_MAIN)
    caller = built(tmp_path / "out", rows={fill: "8 4", scale: "8 8"}, name="fill")
    lines = called(caller)
    launches = [line for line in lines if line.startswith("launch")]
    y, x, n = (
        struct.pack(form, value).hex() for form, value in (("<Q", 256), ("<Q", 512), ("<i", 64))
    )
    assert launches == [
        f"launch {fill} 2 1 1 64 1 1 0 7 0 {y},{n},",
        f"launch {scale} 1 1 1 64 1 1 16 7 2 {x},{y},",
    ]
    assert lines[-1] == "status 0 0"


def test_json_has_all_steps_and_their_scratch(store: Store, tmp_path: Path) -> None:
    call = replace(TWO_CALL, arguments=("float32[64]", "float32[scratch]", "int32=..."))
    store.save(of_steps(call, ((1, 256), (2, 64))))
    export.write_kernels(["fill"], tmp_path / "out", format="json")
    (exported,) = json.loads((tmp_path / "out" / "fill.json").read_text())["calls"]
    fill, scale = exported["launches"]
    assert [argument["value"] for argument in fill["arguments"]] == ["argument 0", 64]
    assert ("cooperative" in fill, scale["cooperative"]) == (False, True)
    assert exported["scratch"] == [{"word": "scratch 1", "offset": 0, "size": 256}]
    with pytest.raises(
        UsageError, match=r"format c cannot export fill.*float32\[scratch\] differs"
    ):
        export.write_kernels(["fill"], tmp_path / "out")


def test_header_of_values_has_the_geometry_of_each_step(store: Store, tmp_path: Path) -> None:
    store.save(of_steps())
    export.write_kernels(["fill"], tmp_path / "out", format="h")
    text = (tmp_path / "out" / "fill.h").read_text()
    assert "#define FILL_GRID_X 2\n" in text
    assert "#define SCALE_GRID_X 1\n" in text
    assert "#define SCALE_SHARED 16\n" in text
