"""Problems that an algorithm of cuBLASLt computes, in place of launches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

from autotune.cuda.cublaslt import Arguments, BoundProduct
from autotune.cuda.launches import Dependence, Values
from autotune.errors import MissingError, RunnerError
from autotune.families.cublaslt.description import ALIGNMENT
from autotune.families.plan import LaunchPlan, LibraryCall
from autotune.problem.call import Call
from autotune.runtime.launcher import (
    BoundGemm,
    Enqueue,
    Executable,
    Gpu,
    SingleLaunch,
    configuration,
)

# Without blocks it is no launch of a kernel.
_NO_LAUNCH = configuration((0, 0, 0), (0, 0, 0), 0, 0)


class LibraryExecutable(Executable):
    """A problem that an algorithm of cuBLASLt computes on a GPU. Safe to share between threads.

    Args:
        gpu: the GPU.
        plan: the plan, whose `library` is the call.
        otherwise: returns what runs calls that the algorithm does not take.
    """

    def __init__(self, gpu: Gpu, plan: LaunchPlan, otherwise: Callable[[], Executable]) -> None:
        super().__init__(gpu, plan, ())
        self._otherwise = otherwise

    def bind(self, call: Call, dependent: Dependence = Dependence.NONE) -> BoundGemm:
        """The algorithm bound to operands, as a plan with launches is.

        Dependent calls run otherwise, as the library waits for all work before it on the stream. So
        do calls with an alpha of 0, where the library may read NaN in A and B; those with an
        address that is no multiple of 16 bytes; and those whose pitches it refuses.

        Raises:
            UsageError, ArrayError, RunnerError: as `Executable.bind`.
        """
        product = None if dependent else self._product(call)
        if product is None:
            return self._otherwise().bind(call, dependent)
        bound = self._start(call.words(), partial(self._calls, product))
        return BoundGemm(self._gpu.ordinal, *bound)

    def _product(self, call: Call) -> BoundProduct | None:
        """The algorithm for the pitches and strides of a call; None if it does not take the call.

        Each call has its own, as the library notes the addresses of a bias and of scales in it.
        """
        library = self.plan.library
        if call.alpha == 0 or any(address % ALIGNMENT for address in call.addresses.values()):
            return None
        assert isinstance(library, LibraryCall)
        try:
            product = self._gpu.cublaslt.bind(library, call.words())
        except (MissingError, RunnerError):
            return None
        return product if product.workspace <= self.plan.workspace else None

    def _calls(self, product: BoundProduct, values: Values) -> list[tuple[Enqueue, SingleLaunch]]:
        """The call of the library, with the address of its workspace among the values."""
        matmul, plan = self._gpu.cublaslt.matmul, self.plan
        arguments = product.arguments(values, plan.workspace)
        words = arguments.before_stream

        # The default argument keeps what the words point to alive.
        def start(stream: int, _: Arguments = arguments) -> None:
            if status := matmul(*words, stream):
                raise RunnerError(f"cublasLtMatmul returned status {status} for {plan.config}")

        function = ctypes.cast(matmul, ctypes.c_void_p).value
        single = SingleLaunch(_NO_LAUNCH, function, ctypes.addressof(arguments.words), arguments)
        return [(start, single)]
