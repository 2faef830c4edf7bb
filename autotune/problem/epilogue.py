"""Epilogues: what is done to each element of the product before it is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from autotune.errors import ProblemError
from autotune.problem.aliases import canonical
from autotune.problem.frozen_word import FrozenWord

if TYPE_CHECKING:
    from autotune.problem.frozen_word import WordField

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
SWIGLU = "swiglu"
"""The word of the epilogue that makes one column of C of two columns of the product."""
GATE_SPAN = 8
"""Columns of op(B) that are gates, before as many that are their values."""


class Epilogue(FrozenWord):
    """An epilogue. Its text is its word, such as `none`, `bias_relu` or `swiglu`.

    There is one value for each word, so that it hashes, sorts and compares as its text does.

    Attributes:
        bias: whether a bias is added.
        activation: the activation, one of `ACTIVATIONS`; None without one.
        residual: whether a matrix like C is added.
        gate: whether one column of C is made of two columns of the product (SwiGLU).

    Raises:
        ProblemError: for an unknown activation, one with a residual, or a gate with anything else.
    """

    __slots__ = ("activation", "bias", "gate", "residual")

    activation: str | None
    bias: bool
    gate: bool
    residual: bool

    def __new__(
        cls,
        bias: bool = False,
        activation: str | None = None,
        residual: bool = False,
        gate: bool = False,
    ) -> Epilogue:
        """The value of these parts."""
        _check(bias, SWIGLU if gate and activation is None else activation, residual, gate)
        last = SWIGLU if gate else "residual" if residual else activation
        word = "_".join(filter(None, ("bias" if bias else None, last))) or "none"
        if word in _BY_WORD:
            return _BY_WORD[word]
        self = super().__new__(cls, word)
        self._hold({"activation": activation, "bias": bias, "gate": gate, "residual": residual})
        return _BY_WORD.setdefault(word, self)

    def __reduce__(self) -> tuple[Callable[[object], Epilogue], tuple[str]]:
        """A copy, also that of another process, is the same value."""
        return Epilogue.parse, (str(self),)

    @classmethod
    def parse(cls, word: object) -> Epilogue:
        """The epilogue of a word, whatever its case.

        Raises:
            ProblemError: for any other word.
        """
        value = _BY_WORD.get(word) if isinstance(word, str) else None
        return value or _BY_WORD[canonical("epilogue", word, EPILOGUES)]

    @property
    def plain(self) -> bool:
        """Whether elements are stored as they are."""
        return self is NO_EPILOGUE

    @property
    def elementwise(self) -> bool:
        """Whether it has a bias and an activation at most, as every precision may have."""
        return not (self.residual or self.gate)


_BY_WORD: dict[str, Epilogue] = {}


def _check(bias: bool, activation: object, residual: bool, gate: bool = False) -> None:
    if activation is not None and activation not in (*ACTIVATIONS, SWIGLU):
        raise ProblemError(
            f"unknown activation {activation!r}; give one of {', '.join(ACTIVATIONS)}, {SWIGLU} "
            "or None"
        )
    if gate and activation != SWIGLU:
        raise ProblemError(f"{SWIGLU} has no activation, here {activation}; leave one out")
    if bias and activation == SWIGLU:
        raise ProblemError(f"{SWIGLU} comes without a bias; leave one out")
    if residual and activation is not None:
        raise ProblemError(
            f"a residual comes without an activation, here {activation}; leave one out"
        )


NO_EPILOGUE: Final = Epilogue()

# In the order of the kernels' EPILOGUE argument: bit 0 is the bias, the rest the activation, the
# residual or SwiGLU.
EPILOGUES: Final = (
    *(Epilogue(bias, last) for last in (None, *ACTIVATIONS) for bias in (False, True)),
    *(Epilogue(bias, residual=True) for bias in (False, True)),
    Epilogue(gate=True),
)
ELEMENTWISE: Final = tuple(epilogue for epilogue in EPILOGUES if epilogue.elementwise)
"""The epilogues that every precision has: a bias and an activation."""

_OF_CALLS = {
    (epilogue.bias, SWIGLU if epilogue.gate else epilogue.activation, epilogue.residual): epilogue
    for epilogue in EPILOGUES
}


def epilogue_of(bias: bool, activation: str | None, residual: bool = False) -> Epilogue:
    """The epilogue of a call that adds a bias or not and then applies an activation, adds a
    residual or does neither; `swiglu` counts as an activation.

    Raises:
        ProblemError: for an unknown activation, or one with a residual; for `swiglu` with a bias.
    """
    try:
        return _OF_CALLS[bias, activation, residual]
    except (KeyError, TypeError):
        _check(bias, activation, residual)
        raise


if TYPE_CHECKING:
    EpilogueField = WordField[str, Epilogue]
    PLAIN = EpilogueField()
else:
    EpilogueField, PLAIN = str, NO_EPILOGUE
