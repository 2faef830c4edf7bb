"""optuna-dashboard on a journal file, with study names that people can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.study._frozen import FrozenStudy

from autotune.errors import AutotuneError, MissingError
from autotune.families.source_text import shortened
from autotune.tuning.search.journal.journal_file import JournalFile


class NamedStorage(JournalStorage):
    """A journal whose studies have readable names, such as `4096x4096x4096:f32:nn on NVIDIA H200,
    measured: simt+gemv, NVRTC 13.0, driver 13.0, sources 5e1f0c2d4b6a`.

    Args:
        path: the journal file.
        title: what its studies tune, and where.
    """

    def __init__(self, path: Path, title: str) -> None:
        super().__init__(JournalFile(path))
        self._title = title

    def get_all_studies(self) -> list[FrozenStudy]:
        """The studies, renamed."""
        studies = super().get_all_studies()
        for study in studies:
            study.study_name = self._readable(study.study_name)
        return studies

    def get_study_name_from_id(self, study_id: int) -> str:
        """The readable name."""
        return self._readable(super().get_study_name_from_id(study_id))

    def get_study_id_from_name(self, study_name: str) -> int:
        """The id of a study by its readable name or its own."""
        for study in self.get_all_studies():
            if study.study_name == study_name:
                return study._study_id
        return super().get_study_id_from_name(study_name)

    def _readable(self, name: str) -> str:
        """The name of a study of `resume.study_of`; another one stays as it is."""
        kinds, *origin = name.split("@")
        if not origin:
            return name
        source, *tools = origin
        driver = [f"driver {tool}" for tool in tools[1:]]
        rest = [*tools[:1], *driver, f"sources {shortened(source)}"]
        return f"{self._title}: {', '.join((kinds, *rest))}"


def serve(path: Path, title: str, host: str, port: int) -> None:
    """Serves the dashboard of a journal until it is interrupted.

    Raises:
        MissingError: without optuna-dashboard.
        AutotuneError: if the port cannot be used.
    """
    run = server()
    try:
        run(NamedStorage(path, title), host=host, port=port)
    except OSError as error:
        raise AutotuneError(
            f"{host}:{port} cannot be used: {error.strerror}; give another --port"
        ) from error


def server() -> Any:
    """The function of optuna-dashboard that serves a storage.

    Raises:
        MissingError: without optuna-dashboard.
    """
    try:
        from optuna_dashboard import run_server
    except ImportError as error:
        raise MissingError(
            "optuna-dashboard is not installed; run `pip install 'tile-autotune[dashboard]'`"
        ) from error
    return run_server
