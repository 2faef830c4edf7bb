"""Contract suites for those who implement a runner or an array framework.

Each is a class of pytest tests; a subclass provides the implementation through fixtures:

    class TestMyRunner(RunnerContract):
        @pytest.fixture
        def runner(self) -> Iterator[Runner]:
            runner = MyRunner()
            yield runner
            runner.close()

This package needs pytest; nothing else in `autotune` does.
"""

from __future__ import annotations

from autotune.errors import MissingError

try:
    import pytest
except ModuleNotFoundError as error:
    raise MissingError("autotune.testing needs pytest; run `pip install pytest`") from error

# Before the imports, so that a failing assertion shows its values.
pytest.register_assert_rewrite("autotune.testing.contracts")

from autotune.testing.contracts import FrameworkContract, RunnerContract  # noqa: E402

__all__ = ["FrameworkContract", "RunnerContract"]
