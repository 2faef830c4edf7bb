"""Targets of one problem after the other, measured by the same processes where they can switch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Protocol, runtime_checkable

from autotune.errors import RunnerError
from autotune.problem import Problem
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike
from autotune.targets.targets import Target


@runtime_checkable
class Switchable(Protocol):
    """A runner that can take up another problem, as a GPU's can."""

    def switch_to(self, problem: Problem) -> None:
        """Takes up the problem."""
        ...


class Workplace:
    """Opens the target of one problem after the other. Runners that can switch to the next problem
    stay open: their processes take longer to start than a race takes. Close it after use.

    Attributes:
        device: where problems are measured.

    Args:
        device: where problems are measured.
        numbers: several GPUs of this machine in its place, as for `targets.opening`.
        seed: random seed of a recording's noise.
        quick: calls cuBLAS without PyTorch where that serves.
    """

    def __init__(
        self,
        device: DeviceLike = DEFAULT,
        *,
        numbers: str | Sequence[int] | None = None,
        seed: int = 0,
        quick: bool = False,
    ) -> None:
        self.device = device
        self._open = partial(
            targets.opening, device=device, numbers=numbers, seed=seed, quick=quick
        )
        self._stack = ExitStack()
        self._target: Target | None = None

    def __enter__(self) -> Workplace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def opening(self, problem: Problem) -> Iterator[Callable[[], Target]]:
        """As `targets.opening`, but the runners stay open unless an error leaves the block."""
        try:
            if self._switched(problem):
                yield lambda: self.current
            else:
                self.close()
                ready = self._stack.enter_context(self._open(problem))

                def target() -> Target:
                    self._target = ready()
                    return self._target

                yield target
        except BaseException:
            self.close()
            raise

    def target(self, problem: Problem) -> Target:
        """The target of the problem, ready.

        Raises:
            AutotuneError: as `targets.opening`.
        """
        with self.opening(problem) as ready:
            return ready()

    @property
    def current(self) -> Target:
        """The target of the last problem."""
        if self._target is None:
            raise RunnerError("nothing is open; ask for a target first")
        return self._target

    def close(self) -> None:
        """Closes the runners; the next problem starts new ones."""
        self._target = None
        self._stack.close()

    def _switched(self, problem: Problem) -> bool:
        """Whether the open runners could all take up the problem, and did."""
        if self._target is None:
            return False
        runners = self._target.runner, *self._target.further
        switchable = [runner for runner in runners if isinstance(runner, Switchable)]
        if len(switchable) < len(runners):
            return False
        targets.check_memory(problem, self._target.runner.device)
        for runner in switchable:
            runner.switch_to(problem)
        return True
