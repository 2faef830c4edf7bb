"""The values that a launch passes in structs."""

from __future__ import annotations

from autotune.families.plan import Launch


def members(launch: Launch, struct: str, *names: str) -> list[object]:
    """Values of members of a struct, by their names."""
    return [launch.struct(struct)[name].value for name in names]


def replaced(launch: Launch) -> dict[str, object]:
    """The members of `Call` that are not the words of the same name."""
    named = {name: member.value for name, member in launch.struct("Call").members}
    return {name: value for name, value in named.items() if name != value}
