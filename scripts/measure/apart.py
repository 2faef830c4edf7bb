"""Objects in processes of their own, GPUs that share work, and times that scripts take by turns."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

ANSWER_S, CLOSED_S = 600.0, 5.0
"""Seconds in which a process must answer, and must end."""
LINES = 3
"""Lines of an error that are kept: some compilers say in the third what is wrong."""

T = TypeVar("T")
R = TypeVar("R")


def serve(
    make: Callable[[], Any], environment: Mapping[str, str], cores: Sequence[int], connection: Any
) -> None:
    """Answers requests, each the name of a method of what `make` returns and its arguments."""
    os.environ |= environment
    os.sched_setaffinity(0, cores)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    try:
        served, fault = make(), ""
    except Exception as error:
        served, fault = None, f"{type(error).__name__}: {error}"
    with suppress(EOFError, OSError):  # the parent has ended
        while (request := connection.recv()) is not None:
            name, *arguments = request
            if fault:
                connection.send((False, fault))
                continue
            try:
                answer = True, getattr(served, name)(*arguments)
            except Exception as error:
                answer = False, f"{type(error).__name__}: {error}"
            connection.send(answer)
    os._exit(0)  # does not wait for workers of libraries, which end with their parent


class Failed(Exception):
    """A variant that does not run; the text says why in a line."""


class Apart:
    """An object in a process of its own, with other environment variables.

    Args:
        make: returns the object.
        environment: the variables.
        cores: the cores of the process.
    """

    def __init__(
        self, make: Callable[[], Any], environment: Mapping[str, str], cores: Sequence[int]
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = make, environment, cores, theirs
        self.process = context.Process(target=serve, args=arguments)
        self.process.start()
        theirs.close()

    def __call__(self, *request: Any) -> Any:
        """The answer to a request.

        Raises:
            Failed: if the process raised an error, ended, or took too long.
        """
        try:
            self.connection.send(request)
            if not self.connection.poll(ANSWER_S):
                raise Failed(f"no answer to {request[0]} within {ANSWER_S:.0f} s")
            fine, answer = self.connection.recv()
        except (EOFError, OSError):
            raise Failed(f"its process ended before it answered {request[0]}") from None
        if not fine:
            raise Failed(" ".join(answer.split("\n")[:LINES]))
        return answer

    def close(self) -> None:
        """Ends the process."""
        if self.connection.closed:
            return
        with suppress(OSError):
            self.connection.send(None)
        self.process.join(CLOSED_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


def shares(count: int) -> list[list[int]]:
    """The cores of this process in `count` shares of the same size."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // count)
    return [cores[place * each : (place + 1) * each] for place in range(count)]


def on_gpus(
    gpus: Sequence[str], items: Iterable[T], run: Callable[[T, str, list[int]], R]
) -> Iterator[R]:
    """The result of `run(item, gpu, cores)` for each item, in order.

    A free GPU takes the next item, with its share of the cores.
    """
    free: SimpleQueue[tuple[str, list[int]]] = SimpleQueue()
    for gpu_and_cores in zip(gpus, shares(len(gpus)), strict=True):
        free.put(gpu_and_cores)

    def placed(item: T) -> R:
        gpu, own = free.get()
        try:
            return run(item, gpu, own)
        finally:
            free.put((gpu, own))

    with ThreadPoolExecutor(len(gpus)) as pool:
        yield from pool.map(placed, items)


def burst_us(torch: Any, run: Callable[[], object], calls: int, host_us: float) -> float:
    """Microseconds of the GPU for a call of a burst.

    The calls queue behind a kernel that waits for longer than `host_us`, the host's time for all.
    """
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(int(3000 * host_us))  # cycles, of which no GPU has 3000 in a microsecond
    begin.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return float(1e3 * begin.elapsed_time(end) / calls)


def median(samples: Sequence[float]) -> dict[str, float]:
    """The median of microseconds and half the interquartile range, as in `Measurement`."""
    low, middle, high = statistics.quantiles(samples, n=4)
    return {"us": middle, "spread_us": (high - low) / 2}
