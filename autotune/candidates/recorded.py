"""Recorded configurations, checked and adapted for another problem or a later version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from autotune.candidates import space
from autotune.candidates.ordered import order_of
from autotune.device import Device, same_model
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import Problem


def is_legal(config: Config, problem: Problem, device: Device, order: str | None = None) -> bool:
    """Whether the families of this version can run the configuration, fast or not; with an `order`
    of summation, whether it has that order."""
    try:
        if order is None:
            return space.rejection(config, problem, device, recorded=True) is None
        broken = space.rejection(config, problem, device, recorded=True, ordered=True)
        return broken is None and str(order_of(config, problem)) == order
    except ConfigError:
        return False


def as_tuned(device: Device, tuned_on: Device) -> Device:
    """The device with the resident clusters of the card of its model that a record was tuned on.

    Rules read the clusters to choose what is worth trying. What is worth it on one card still runs
    on the others, so a record is judged by the clusters of its own.
    """
    if device.clusters == tuned_on.clusters or not same_model(device, tuned_on):
        return device
    return replace(device, clusters=tuned_on.clusters)


def for_compute(config: Config, problem: Problem) -> Config:
    """The configuration with the problem's compute, which is a parameter of some families."""
    params = (
        (name, problem.compute if name == "compute" else value) for name, value in config.params
    )
    return Config(config.family, tuple(params))


def current(
    family: str, recorded: Iterable[Config], problem: Problem, device: Device
) -> tuple[Config, ...]:
    """The recorded configurations of a family that have its present parameters and their values.

    Those of an earlier version may lack a parameter, and no kernel can be made of them; nor of a
    value that the family does not have.
    """
    domain = registry.find(family).domain(problem, device)
    return tuple(
        config
        for config in recorded
        if config.family == family
        and config.values.keys() == domain.keys()
        and all(value in domain[name] for name, value in config.params)
    )


def kernel_kind(problem: Problem) -> tuple[object, ...]:
    """Equal for problems that the same kernels suit, whatever their sizes.

    fp16 and bfloat16 are of one kind, and so are the types of fp8.
    """
    precision = problem.precision
    eight_bit = precision.sums == "integer", problem.accumulate, problem.scale == "block"
    operands = problem.element_bytes, problem.products, precision.on_tensor_cores
    return problem.layout, *operands, *(eight_bit if precision.eight_bit else ())
