"""Limits of a launch on a device: threads, grid, shared memory, registers, cp.async, workspace."""

from __future__ import annotations

from autotune.device import Device

LARGEST_GRID_X, LARGEST_GRID_YZ = 2**31 - 1, 65535
"""Blocks along x, and along y or z, of a grid (CUDA programming guide)."""
LARGEST_THREAD_REGISTERS = 255
ASYNC_CAPABILITY = 8, 0
"""The least compute capability with cp.async, and with tensor cores for more than f16."""


def threads_fault(threads: int, device: Device) -> str | None:
    """Why the device cannot launch a block of `threads`; None if it can."""
    if threads <= device.threads_per_block:
        return None
    return f"needs {threads} threads a block, {device.name} allows {device.threads_per_block}"


def grid_fault(blocks: int) -> str | None:
    """Why a grid cannot have `blocks` along x; None if it can."""
    if blocks <= LARGEST_GRID_X:
        return None
    return f"needs {blocks} blocks, a grid allows {LARGEST_GRID_X}"


def shared_fault(needed: int, blocks: int, device: Device) -> str | None:
    """Why an SM cannot hold `blocks` with `needed` bytes of shared memory each; None if it can."""
    most = device.shared_per_block_optin
    if needed > most:
        return f"needs {needed} bytes a block, {device.name} allows {most}"
    resident = blocks * (needed + device.reserved_shared_per_block)
    if resident <= device.shared_per_sm:
        return None
    return f"{blocks} blocks need {resident} bytes an SM of {device.shared_per_sm}"


def register_budget(blocks: int, threads: int, device: Device) -> int:
    """Registers a thread, in the allocation's steps of 8, that let `blocks` be resident."""
    available = min(device.registers_per_sm // blocks, device.registers_per_block)
    return min(LARGEST_THREAD_REGISTERS, available // threads // 8 * 8)


def registers_fault(guess: int, blocks: int, threads: int, device: Device) -> str | None:
    """Why threads that need about `guess` registers leave no room for `blocks` of them; None if
    they do."""
    budget = register_budget(blocks, threads, device)
    if guess <= budget:
        return None
    return f"about {guess} a thread; {blocks} blocks of {threads} threads leave {budget}"


def likely_registers(
    guess: int, spare: int, blocks: int, threads: int, device: Device | None
) -> int:
    """Registers a thread that the compiler is likely to take: `spare` beyond the guess, but no more
    than let the `blocks` of its launch bounds be resident. The guess without a device."""
    if device is None:
        return guess
    return max(guess, min(guess + spare, register_budget(blocks, threads, device)))


def has_cp_async(device: Device) -> bool:
    """Whether the device copies from global to shared memory asynchronously (cp.async)."""
    return device.compute_capability >= ASYNC_CAPABILITY


def cp_async_fault(device: Device) -> str | None:
    """Why the device has no cp.async; None if it has."""
    return capability_fault("cp.async", ASYNC_CAPABILITY, device)


def capability_fault(
    name: str, needed: tuple[int, int], device: Device, *, alone: bool = False
) -> str | None:
    """Why the device lacks what needs a compute capability, or that one `alone`; else None."""
    own = device.compute_capability
    if own == needed or (own > needed and not alone):
        return None
    wanted, actual = ("{}.{}".format(*capability) for capability in (needed, own))
    text = "is of compute capability {} alone" if alone else "needs compute capability {}"
    return f"{name} {text.format(wanted)}; {device.name} has {actual}"


WORKSPACE_SHARE = 8
"""A workspace takes at most this part of the device's memory."""


def workspace_fault(needed: int, device: Device) -> str | None:
    """Why a workspace of `needed` bytes is too large; None if it is not."""
    most = device.memory_bytes // WORKSPACE_SHARE
    if needed <= most:
        return None
    return f"needs {needed} bytes; {most} of {device.name} are taken at most"
