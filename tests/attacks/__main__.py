"""``python -m tests.attacks``: how many of 200 people each attack finds, risks of tables, sums, and costs.

``python -m tests.attacks risks`` prints only the risks of protected tables, ``python -m tests.attacks sums``
only what sums over rows and above relays determine, and ``python -m tests.attacks cost`` what exact rounds
and relays cost where rows are few.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from attacks.cost import print_cost
from attacks.crafted_queries import ATTACKS
from attacks.risks import print_risks
from attacks.sums import print_sums
from attacks.test_crafted_queries import attacked

MODES = ("none", "raw", "summary", "dp")
PARTS = sys.argv[1:] or ["attacks", "risks", "sums", "cost"]
if "attacks" in PARTS:
    print(f"{'people of 200 that are found, worst of 3 tables':50} " + " ".join(f"{m:>8}" for m in MODES))
    for name in ATTACKS:
        worst = [max(attacked(name, mode, seed) for seed in range(3)) for mode in MODES]
        print(f"{name:50} " + " ".join(f"{n:8}" for n in worst), flush=True)
if "risks" in PARTS:
    print_risks()
if "sums" in PARTS:
    print_sums()
if "cost" in PARTS:
    print_cost()
