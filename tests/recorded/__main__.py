"""``python -m tests.recorded [PATTERN] [--keep]``: record anew, and print which rows changed.

PATTERN chooses cases as a shell would, e.g. ``'fuzzy/*'``. With --keep the checkpoints in ``kept`` are
written anew, too; they are there to be read by later releases, so this is hardly ever needed.
"""

import sys
import warnings
from fnmatch import fnmatchcase

from tests.recorded import cases, comparing


def main(words: list[str]) -> int:
    keep = "--keep" in words
    pattern = next((word for word in words if word != "--keep"), "*")
    chosen = [name for name in cases.CASES if fnmatchcase(name, pattern)]
    if not chosen:
        print(f"no case is called {pattern!r}", file=sys.stderr)
        return 1
    before = comparing.load() if comparing.PATH.exists() else {"fingerprint": {}, "cases": {}}
    here = comparing.fingerprint()
    if len(chosen) < len(cases.CASES) and before["cases"] and here != before["fingerprint"]:
        print("another machine than the recorded one: record all cases or none", file=sys.stderr)
        return 1
    if keep:
        cases.keep()
    found = {name: cases.perform(name) for name in chosen}
    was = before["cases"]
    comparing.save(
        {
            "fingerprint": here,
            "cases": {
                name: found.get(name, was.get(name)) for name in cases.CASES if name in {**was, **found}
            },
        }
    )
    changed = 0
    for name in found:
        differ = list(comparing.differences(was.get(name, {}), found[name], exact=True))
        changed += bool(differ)
        if name not in was:
            print(f"{name}: new")
        elif differ:
            print(comparing.summary(name, differ))
    for name in was.keys() - cases.CASES.keys():
        print(f"{name}: gone")
    print(f"{len(found)} cases recorded, {changed} of them changed or new")
    return 0


if __name__ == "__main__":
    warnings.simplefilter("error")
    sys.exit(main(sys.argv[1:]))
