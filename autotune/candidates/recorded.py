"""Recorded configurations, checked and adapted for another problem or a later version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from autotune.candidates.ordered import order_of
from autotune.candidates.verdicts import VerdictsByFamily
from autotune.device import Device, same_model
from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import Problem


class Legality:
    """Whether the families of this version can run configurations of a problem on a device. Domains
    and rules are bound once.

    Args:
        problem: the problem.
        device: the device.
        recorded: whether configurations have been measured, so that slow ones pass too.
        order: the order of summation that they have to have; None for any.
    """

    def __init__(
        self,
        problem: Problem,
        device: Device,
        *,
        recorded: bool = True,
        order: str | None = None,
    ) -> None:
        self._problem, self._recorded, self._order = problem, recorded, order
        self._families = VerdictsByFamily(problem, device)

    def __call__(self, config: Config) -> bool:
        """Whether a configuration is legal."""
        verdicts, ordered = self._families[config.family], self._order is not None
        if verdicts is None or not verdicts.legal(config, recorded=self._recorded, ordered=ordered):
            return False
        return self._order is None or str(order_of(config, self._problem)) == self._order


def is_legal(config: Config, problem: Problem, device: Device, order: str | None = None) -> bool:
    """Whether the families of this version can run the configuration, fast or not; with an `order`
    of summation, whether it has that order."""
    return Legality(problem, device, order=order)(config)


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
    for place, (name, value) in enumerate(config.params):
        if name == "compute" and value != problem.compute:
            own = (name, problem.compute)
            return Config(config.family, (*config.params[:place], own, *config.params[place + 1 :]))
    return config


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
