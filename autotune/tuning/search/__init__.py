"""Which configuration to try next, and the log of finished trials. The one user of Optuna.

`Proposer` asks a study in memory; `TrialLog` keeps trials in a file, `SharedLog` in an Optuna
storage too. They do not depend on each other: either can be replaced.
"""

from __future__ import annotations

from autotune.tuning.search.axes import axes_of
from autotune.tuning.search.proposer import Patience, Proposer
from autotune.tuning.search.trial_log import TrialLog

__all__ = ["Patience", "Proposer", "TrialLog", "axes_of"]
