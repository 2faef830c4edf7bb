"""The current policy, which a `with` block changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from autotune import settings
from autotune.errors import UsageError
from autotune.runtime import entered
from autotune.settings import Policy

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from autotune.settings import PolicyChanges


@contextmanager
def policy(policy: Policy | None = None, /, **changes: Unpack[PolicyChanges]) -> Iterator[Policy]:
    """Changes the policy of the calls within a `with` block.

        with autotune.policy(cold=True, dependent=True):
            y = autotune.matmul(x, weight)

    `matmul`, `kernel`, `warmup`, calls of kernels and the functions of `autotune.torch` follow the
    policy of the innermost block unless they are given one. It holds for the thread or asyncio task
    that enters the block, but `frozen` holds for all threads of the process until the block ends,
    as `AUTOTUNE_MODE=frozen` or `frozen:raise` does for a whole process: `tune` and `tune_kernel`
    raise an error then, and so do `kernel` and `warmup` for problems without a record.

    Args:
        policy: the policy; None is the one around the block.
        changes: fields of `autotune.Policy` that differ in the block.

    Raises:
        UsageError: for a value that a field does not have.
        TypeError: for a name that is not a field.
    """
    base = settings.policy() if policy is None else policy
    if not isinstance(base, Policy):
        raise UsageError(f"the policy is {base!r}; give an autotune.Policy, or fields as keywords")
    if unknown := [*changes.keys() - set(Policy._fields)]:
        fields = ", ".join(Policy._fields)
        raise TypeError(f"a policy has no field {unknown[0]!r}; it has {fields}")
    changed = base._replace(**changes)
    with entered(changed):
        yield changed
