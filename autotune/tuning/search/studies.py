"""Optuna studies, created without Optuna's log messages."""

from __future__ import annotations

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage


def study_of(
    name: str, storage: BaseStorage | None = None, sampler: BaseSampler | None = None
) -> optuna.Study:
    """The study of that name, created if necessary; in memory without a storage."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            study_name=name, storage=storage, sampler=sampler, load_if_exists=True
        )
    finally:
        optuna.logging.set_verbosity(verbosity)
