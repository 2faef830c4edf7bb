"""The parts of the reliability campaign, each an attack on one promise of `docs/reliability.md`.

Samples and fakes are those of the tests, which this makes importable.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2] / "tests"
if str(TESTS) not in sys.path:
    sys.path.append(str(TESTS))
