"""What families with shares of K ask of a device in the same way."""

from __future__ import annotations

from autotune.device import Device

WORKSPACE_SHARE = 8
"""A workspace takes no more than this part of the device's memory."""
LAST_BLOCK_BYTES = 2**19
"""What the last block of a tile may read alone: one SM takes about 5 us for it."""
LARGEST_THREAD_REGISTERS = 255


def fill(blocks: int, sms: int) -> float:
    """The share of the SMs' time that is used if each wave gives every SM one block."""
    return blocks / (-(-blocks // sms) * sms)


def fuller(blocks: int, splits: int, sms: int, margin: float = 1.0) -> bool:
    """Whether so many shares of each block fill waves better than any smaller number."""
    reached = fill(blocks * splits, sms)
    return all(reached > margin * fill(blocks * less, sms) for less in range(1, splits))


def last_block_fault(read: int) -> str | None:
    """What is wrong with a last block that reads so many bytes of partial sums, if anything."""
    if read <= LAST_BLOCK_BYTES:
        return None
    return f"the last block of a tile would read {read} bytes; {LAST_BLOCK_BYTES} at most"


def workspace_fault(needed: int, device: Device) -> str | None:
    """What is wrong with a workspace of so many bytes, if anything."""
    most = device.memory_bytes // WORKSPACE_SHARE
    if needed <= most:
        return None
    return f"needs {needed} bytes; {most} of {device.name} are taken at most"


def shared_fault(needed: int, blocks: int, device: Device) -> str | None:
    """What is wrong with so much shared memory a block, of which `blocks` are to be resident."""
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


def order_fault(rows: int, columns: int, group: int, few: int, device: Device) -> str | None:
    """What is wrong with walking `group` rows of tiles together, if anything; up to `few` tiles an
    SM, any order will do."""
    if group == 1:
        return None
    if rows * columns <= few * device.sms:
        return f"{rows * columns} tiles are few for {device.sms} SMs; their order is free"
    if columns == 1 or group > rows:
        return f"{rows}x{columns} tiles have no groups of {group} rows"
    return None
