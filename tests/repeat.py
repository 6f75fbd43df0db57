"""Find flaky tests: ``python -m tests.repeat 20`` runs every test whose outcome could differ 20 times.

All tests run once, with the plugin ``tests.nondeterministic``, which lists those that depend on more than
fixed seeds; these run again and again. Those between machines (tests/machines) are left out: they strike at
random moments themselves, and ``make assurance`` repeats them.
"""

import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

FOLDER = Path("build/varying")
PYTEST = [sys.executable, "-m", "pytest", "--numprocesses", "2", "-p", "no:cacheprovider"]
WHERE = ["tests", "src/unpooled", "--ignore=tests/machines"]


def failed(words: list[str]) -> list[str]:
    """The tests that failed in one run of pytest."""
    done = subprocess.run([*PYTEST, *words], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.stdout + done.stderr)
    (FOLDER / f"log-{time.time():.0f}.txt").write_text(done.stdout)
    print(done.stdout.strip().splitlines()[-1], flush=True)
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)


def listed() -> list[str]:
    lines = [line for file in FOLDER.glob("*.tsv") for line in file.read_text().splitlines()]
    return sorted({line.partition("\t")[0] for line in lines})


def main(times: int, where: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    count = Counter(
        failed(["--dist", "loadfile", "-p", "tests.nondeterministic", "--varying", str(FOLDER), *where])
    )
    varying = listed()
    print(f"{len(varying)} tests vary", flush=True)
    chosen = FOLDER / "chosen.txt"
    chosen.write_text("\n".join(varying) + "\n")
    for _ in range(times - 1 if varying else 0):
        count.update(failed(["--dist", "worksteal", f"@{chosen}"]))
    for name, number in count.most_common():
        print(f"failed {number} of {times}: {name}")
    print(f"{len(count)} flaky or broken tests in {times} runs")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:] or WHERE))
