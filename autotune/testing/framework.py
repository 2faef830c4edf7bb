"""The contract of `autotune.runtime.frameworks.Framework`, as tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from autotune.errors import ArrayError
from autotune.runtime.frameworks import Framework

MakeArray = Callable[[tuple[int, ...], str], Any]
"""Makes a row-major array of a shape and an element type, such as `float32`, on CUDA device 0."""


class FrameworkContract:
    """The contract that the run time relies on in every array library.

    A subclass overrides the fixtures `framework` and `make`, and `transposed` if arrays of the
    library have no `T`.

    Attributes:
        allocates: whether `empty` makes arrays; else it has to raise an `ArrayError`.
        dtypes: names of the element types that the library can make.
    """

    allocates: ClassVar[bool] = True
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float16")

    @pytest.fixture
    def framework(self) -> Framework:
        """The framework under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture `framework`")

    @pytest.fixture
    def make(self) -> MakeArray:
        """Makes arrays of the library."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture `make`")

    def transposed(self, array: Any) -> Any:
        """The array with its two axes exchanged, over the same memory."""
        return array.T

    def test_read_gives_an_address_and_a_hashable_signature(
        self, framework: Framework, make: MakeArray
    ) -> None:
        address, signature = framework.read(make((5, 3), "float32"))
        assert address > 0
        assert hash(signature) == hash(signature)

    def test_arrays_of_one_kind_share_a_signature(
        self, framework: Framework, make: MakeArray
    ) -> None:
        first, second = make((5, 3), "float32"), make((5, 3), "float32")
        assert framework.read(first)[1] == framework.read(second)[1]
        assert framework.read(first)[0] != framework.read(second)[0]
        assert framework.describe(first, "A") == framework.describe(second, "A")

    def test_signature_tells_shapes_and_layouts_apart(
        self, framework: Framework, make: MakeArray
    ) -> None:
        square = make((4, 4), "float32")
        arrays = (square, self.transposed(square), make((4, 5), "float32"))
        assert len({framework.read(array)[1] for array in arrays}) == len(arrays)

    def test_signature_tells_element_types_apart(
        self, framework: Framework, make: MakeArray
    ) -> None:
        signatures = {framework.read(make((5, 3), dtype))[1] for dtype in self.dtypes}
        assert len(signatures) == len(self.dtypes)

    def test_description_has_shape_strides_type_and_device(
        self, framework: Framework, make: MakeArray
    ) -> None:
        for dtype in self.dtypes:
            operand = framework.describe(make((2, 5, 3), dtype), "A")
            assert (operand.name, operand.dtype, operand.ordinal) == ("A", dtype, 0)
            assert (operand.shape, operand.strides) == ((2, 5, 3), (15, 3, 1))

    def test_transposed_array_is_described_by_its_strides(
        self, framework: Framework, make: MakeArray
    ) -> None:
        operand = framework.describe(self.transposed(make((5, 3), "float32")), "B")
        assert (operand.shape, operand.strides) == ((3, 5), (1, 3))

    def test_stream_is_a_handle(self, framework: Framework, make: MakeArray) -> None:
        arrays = [make((5, 3), "float32"), make((3, 7), "float32")]
        assert framework.stream(arrays, 0) >= 0

    def test_arrays_without_gradients_record_nothing(
        self, framework: Framework, make: MakeArray
    ) -> None:
        a, b, out = (make(shape, "float32") for shape in ((5, 3), (3, 7), (5, 7)))
        assert not framework.records_gradient(a, b, out, None)

    def test_exports_answers_for_any_type(self, framework: Framework, make: MakeArray) -> None:
        assert framework.exports(type(make((5, 3), "float32"))) in (True, False)
        assert framework.exports(object) is False

    def test_plain_arrays_are_not_negated(self, framework: Framework, make: MakeArray) -> None:
        negated = framework.negated
        assert negated is None or negated(make((5, 3), "float32")) is False

    @pytest.mark.parametrize("named", [None, "float32", "int32"])
    def test_empty_is_a_row_major_array_of_the_right_type(
        self, framework: Framework, make: MakeArray, named: str | None
    ) -> None:
        for dtype in self.dtypes:
            model = make((5, 3), dtype)
            if not self.allocates:
                with pytest.raises(ArrayError, match="out="):
                    framework.empty(model, (5, 7), named)
                continue
            operand = framework.describe(framework.empty(model, (5, 7), named), "out")
            assert (operand.shape, operand.strides) == ((5, 7), (7, 1))
            assert operand.dtype == (named or dtype)
