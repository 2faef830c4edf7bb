"""A GEMM as a tunable of which only a few configurations are tried: a quick race, in two rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.lookup.promising import Contenders
from autotune.records import Entry, Provenance, Record, Store
from autotune.runners.base import Evidence, Measurement, Runner
from autotune.runners.objective import Objective
from autotune.tuning.gemm import GemmTunable
from autotune.tuning.tunable import Candidates


@dataclass(frozen=True)
class QuickTunable(GemmTunable):
    """A problem and the configurations that are raced on it; its record says that it is quick.

    Attributes:
        raced: the configurations of both rounds.
    """

    raced: Contenders = field(kw_only=True)

    @property
    def kinds(self) -> str:
        """The race has a study of its own for each set of configurations."""
        texts = "\n".join(map(str, self.raced.first))
        return f"quick-{sha256(texts.encode()).hexdigest()[:12]}"

    def candidates(
        self, runner: Runner, unsafe: Callable[[Config], bool], *, survey: int | None
    ) -> Candidates:
        """The configurations that are not quarantined.

        Raises:
            AutotuneError: if none is left.
        """
        del survey
        safe = tuple(config for config in self.raced.configs if not unsafe(config))
        rejected = {"quarantined": len(self.raced.configs) - len(safe)}
        if not safe:
            raise AutotuneError(
                f"no kernel to race on {self.problem} on {runner.device.name}: "
                f"{rejected['quarantined']} quarantined; leave out quick to search all"
            )
        return Candidates(safe, (), rejected if rejected["quarantined"] else {})

    def contenders(self, device: Device, store: Store, objective: Objective) -> Contenders:
        """All of them."""
        del device, store, objective
        return self.raced

    def guesses(
        self, candidates: Candidates, device: Device, store: Store, objective: Objective
    ) -> tuple[Config, ...]:
        """None: the race is all."""
        del candidates, device, store, objective
        return ()

    def record(
        self,
        *,
        device: Device,
        evidence: Evidence,
        entries: Sequence[Entry],
        baseline: Measurement | None,
        provenance: Provenance,
    ) -> Record:
        """The record of the race."""
        return super().record(
            device=device,
            evidence=evidence,
            entries=entries,
            baseline=baseline,
            provenance=replace(provenance, quick=True),
        )
