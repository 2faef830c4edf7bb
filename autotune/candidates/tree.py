"""The tree of a domain's combinations, of which whole branches are rejected at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from autotune.candidates.picker import picker
from autotune.families.config import Value
from autotune.families.rules import BoundRule

Params = tuple[tuple[str, Value], ...]
"""Named values, as a configuration holds them."""


class Tree:
    """Every combination of a domain, one level for each parameter.

    The values that may follow on a level depend only on those chosen above it that rules from
    there on read. Branches with the same such values are walked once.

    Attributes:
        rejected: how many combinations that `legal` passed over fell to which reason.
    """

    def __init__(self, domain: Mapping[str, tuple[Value, ...]], rules: Sequence[BoundRule]) -> None:
        self.rejected: dict[str, int] = {}
        self._chosen: list[Value] = []
        names = tuple(domain)
        checks: list[list[BoundRule]] = [[] for _ in names]
        for rule in rules:
            checks[max(map(names.index, rule.needs), default=0)].append(rule)
        self._levels = [_Level(level, domain, checks) for level in range(len(names))]

    @property
    def examples(self) -> dict[str, str]:
        """The first values that broke a rule of each reason, with what is wrong with them."""
        rules = [rule for level in self._levels for rule in level.rules]
        return {rule.reason: rule.example for rule in reversed(rules) if rule.example is not None}

    def legal(self) -> list[Params]:
        """The legal combinations, in order."""
        combinations: list[Params] = []
        self._collect(0, (), combinations)
        return combinations

    def _collect(self, level: int, prefix: Params, combinations: list[Params]) -> None:
        """Appends what follows `prefix`, which holds what is chosen above `level`."""
        if level == len(self._levels) or self._levels[level].shared:
            ends, rejected = self._branch(level)
            combinations += map(prefix.__add__, ends)
            _count(self.rejected, rejected)
            return
        here, chosen = self._levels[level], self._chosen
        for pair, reason in here.options(chosen):
            if reason is not None:
                self.rejected[reason] = self.rejected.get(reason, 0) + here.size
                continue
            chosen.append(pair[1])
            self._collect(level + 1, (*prefix, pair), combinations)
            chosen.pop()

    def _branch(self, level: int) -> _Branch:
        """The legal ends of the combination chosen above `level`, and the rejections, cached."""
        if level == len(self._levels):
            return _END
        here, chosen = self._levels[level], self._chosen
        key = here.read(chosen)
        if (branch := here.branches.get(key)) is not None:
            return branch
        ends, rejected = list[Params](), dict[str, int]()
        for pair, reason in here.options(chosen):
            if reason is not None:
                rejected[reason] = rejected.get(reason, 0) + here.size
                continue
            chosen.append(pair[1])
            below, fallen = self._branch(level + 1)
            chosen.pop()
            ends += map((pair,).__add__, below)
            _count(rejected, fallen)
        here.branches[key] = ends, rejected
        return ends, rejected


_Branch = tuple[list[Params], dict[str, int]]
_END: _Branch = ([()], {})


class _Level:
    """One parameter of a tree and the rules that it completes.

    Attributes:
        size: combinations below each value.
        shared: whether several branches above may hold the same.
        read: picks the values chosen above that decide what a branch from here on holds.
        branches: branches by what `read` picks.
        rules: those that the parameter completes.
    """

    def __init__(
        self, level: int, domain: Mapping[str, tuple[Value, ...]], checks: Sequence[list[BoundRule]]
    ) -> None:
        names = tuple(domain)
        self.size = prod(map(len, list(domain.values())[level + 1 :]))
        reads = _needed(names[:level], checks[level:])
        self.shared = len(reads) < level
        self.read = picker(reads)
        self.branches: dict[object, _Branch] = {}
        self._pairs = [(names[level], value) for value in domain[names[level]]]
        self._decide = picker(_needed(names[:level], checks[level : level + 1]))
        self._options: dict[object, list[tuple[tuple[str, Value], str | None]]] = {}
        self.rules = [_KeptRule(rule, names) for rule in checks[level]]

    def options(self, chosen: list[Value]) -> list[tuple[tuple[str, Value], str | None]]:
        """Each value, named, with the reason for which the first broken rule rejects it."""
        key = self._decide(chosen)
        if (options := self._options.get(key)) is None:
            options = [(pair, self._broken([*chosen, pair[1]])) for pair in self._pairs]
            self._options[key] = options
        return options

    def _broken(self, chosen: list[Value]) -> str | None:
        for rule in self.rules:
            if rule.breaks(chosen):
                return rule.reason
        return None


class _KeptRule:
    """A rule that keeps its verdicts: several branches ask for the same values.

    Attributes:
        reason: the rule's reason.
        example: the first values that broke it, and what is wrong with them; None before.
    """

    def __init__(self, rule: BoundRule, names: Sequence[str]) -> None:
        self.reason = rule.reason
        self.example: str | None = None
        self._needs = rule.needs
        self._check = rule.check
        self._read = picker([names.index(name) for name in rule.needs])
        self._verdicts: dict[tuple[Value, ...], bool] = {}

    def breaks(self, chosen: Sequence[Value]) -> bool:
        """Whether the chosen values break the rule."""
        values = self._read(chosen)
        if (verdict := self._verdicts.get(values)) is None:
            detail = self._check(values)
            verdict = self._verdicts[values] = detail is not None
            if detail is not None and self.example is None:
                named = zip(self._needs, values, strict=True)
                pairs = ", ".join(f"{name}={value}" for name, value in named)
                self.example = f"{pairs}: {detail}" if pairs else detail
        return verdict


def _needed(names: Sequence[str], checks: Sequence[Sequence[BoundRule]]) -> list[int]:
    """Which of the parameters the rules read, as indexes."""
    needed = {name for rules in checks for rule in rules for name in rule.needs}
    return [index for index, name in enumerate(names) if name in needed]


def _count(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for reason, count in more.items():
        counts[reason] = counts.get(reason, 0) + count
