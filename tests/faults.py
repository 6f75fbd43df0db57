"""The fault matrix: ``python -m tests.faults`` injects faults into real processes and prints what happened.

Each fault has the tests that inject it. If they pass they have shown what the last column says: the bits of
an undisturbed run, or the cause in one line.
"""

import subprocess
import sys
import time
from typing import NamedTuple

from tests.fault_list import FAULTS, Fault


class Outcome(NamedTuple):
    """The result of one row of the matrix."""

    fault: Fault
    passed: bool
    seconds: float
    output: str


def inject(fault: Fault) -> Outcome:
    """Run the tests of a fault, with those that take long."""
    began = time.monotonic()
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "long or not long", *fault.tests]
    done = subprocess.run(words, capture_output=True, text=True)
    return Outcome(fault, done.returncode == 0, time.monotonic() - began, done.stdout + done.stderr)


def main() -> int:
    width = max(len(fault.name) for fault in FAULTS)
    failed = 0
    for fault in FAULTS:
        outcome = inject(fault)
        verdict = fault.shown if outcome.passed else "FAILED"
        print(f"{fault.name:<{width}}  {outcome.seconds:6.0f} s  {verdict}", flush=True)
        if not outcome.passed:  # at once, because the rest takes long
            failed += 1
            print(f"{outcome.output}\n", flush=True)
    print(f"{len(FAULTS) - failed} of {len(FAULTS)} faults end as stated")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
