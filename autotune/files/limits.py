"""The most bytes that are read of each kind of file: `files.read(path, limits.RECORD)`.

Each is about a hundred times the largest file seen, yet small enough that whatever is in the file
is decoded, or refused, with less than 500 MB of memory.
"""

_KIB, _MIB = 2**10, 2**20

RECORD = 1 * _MIB
"""A tuning record or a range: the largest shipped record has 9 KB."""

QUARANTINE = 16 * _MIB
"""Configurations that hung a GPU, 200 bytes each: a full one is a broken GPU."""

DEVICE = 64 * _KIB
"""A device description has 1 KB."""

BUNDLE = 16 * _MIB
"""A bundle as it lies on disk: 120 records take 55 KB. A file may have any number of bundles."""

BUNDLE_TEXT = 64 * _MIB
"""An expanded bundle, or what look-ups expand of a file: 7,000 records of 9 KB."""

BUNDLE_RECORDS = 10_000
"""Records of a file that look-ups read: describing them takes 50 s, once."""

RECORDING = 192 * _MIB
"""A recording as it lies on disk: the shipped ones have 16 to 66 KB. A cache of Kernel Tuner, also
expanded: one of 100,000 configurations has 100 MB."""

RECORDING_TEXT = 16 * _MIB
"""An expanded recording: the shipped ones have 0.2 to 0.7 MB."""

PROGRAM = 64 * _MIB
"""A compiled program or library: cubins have 10 to 300 KB."""

SOURCE = 16 * _MIB
"""CUDA or C source, also after preprocessing."""

MANIFEST = 16 * _MIB
"""The plans of an export and the list of its files: 5 KB for each problem."""

LINE = 1 * _MIB
"""A line of a trial log or a quarantine: a trial takes 1 KB, a kernel's log may be in it."""

TRIAL_LOG = 256 * _MIB
"""A trial log: 150,000 trials with their claims, 1.5 KB together."""

DOCUMENT = 16 * _MIB
"""A JSON text of any kind: its value takes up to 20 times the memory of the text."""

LARGEST = TRIAL_LOG
"""The largest of these: a larger file is not kept as a copy."""
