"""The hook that runs when a wheel is built or the package is installed editable."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("autotune/runtime/native")
PROGRAMS = Path("autotune/data/programs")
COMPILER = Path("scripts/fit/programs.py")
PORTFOLIO = "AUTOTUNE_PORTFOLIO"
"""Names the architectures that kernels are compiled for."""


class BuildHook(BuildHookInterface[Any]):
    """Adds to a wheel what is made from its sources on the machine that builds it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._add_compiled_calls(version == "editable", build_data)
        if version != "editable":
            self._add_programs(build_data)

    def dependencies(self) -> list[str]:
        """The package itself is run to compile its kernels."""
        metadata = self.metadata.core_raw_metadata
        return [*metadata["dependencies"]] if os.environ.get(PORTFOLIO) else []

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        for name in ("_scratch", "_programs"):
            if scratch := vars(self).get(name):
                scratch.cleanup()

    def _add_compiled_calls(self, editable: bool, build_data: dict[str, Any]) -> None:
        """Compiles the warm calls; without a C compiler, with `AUTOTUNE_NATIVE=0`, or elsewhere
        than on Linux, where no GPU is called, Python serves them.

        The library belongs to this kind of machine, but to every version of Python.
        """
        if os.environ.get("AUTOTUNE_NATIVE") == "0" or sys.platform != "linux":
            return
        source = Path(self.root) / NATIVE
        build = runpy.run_path(str(source / "build.py"))["build"]
        self._scratch = tempfile.TemporaryDirectory(prefix="autotune-")
        try:
            library = build(source if editable else Path(self._scratch.name))
        except (OSError, subprocess.SubprocessError) as error:
            self.app.display_warning(f"no C compiler, so warm calls will run in Python: {error}")
            return
        if not editable:
            build_data["force_include"][str(library)] = str(NATIVE / library.name)
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"

    def _add_programs(self, build_data: dict[str, Any]) -> None:
        """Compiles kernels for the architectures in `AUTOTUNE_PORTFOLIO`, such as
        `sm_90 sm_80`; takes minutes on 16 cores, and nothing without it or without a compiler."""
        archs = os.environ.get(PORTFOLIO, "").replace(",", " ").split()
        if not archs:
            return
        self._programs = tempfile.TemporaryDirectory(prefix="autotune-")
        command = [sys.executable, str(COMPILER), self._programs.name, *archs]
        # pip has the dependencies of an isolated build on this path.
        paths = filter(None, (self.root, os.environ.get("PYTHONPATH")))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        try:
            subprocess.run(command, cwd=self.root, env=environment, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            self.app.display_warning(f"the wheel has no compiled kernels: {error}")
        for path in sorted(Path(self._programs.name).glob("*.programs")):
            build_data["force_include"][str(path)] = str(PROGRAMS / path.name)
