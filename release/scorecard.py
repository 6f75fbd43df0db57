"""The checks of OpenSSF Scorecard that the tree can answer, and a list of those that need the host.

python release/scorecard.py
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMIT = re.compile(r"@[0-9a-f]{40}$")
HOSTS = {
    "Branch-Protection": "rules of the branch main",
    "CI-Tests": "whether merged changes passed the workflow tests",
    "CII-Best-Practices": "a badge that the owner applies for",
    "Code-Review": "whether changes were reviewed before they were merged",
    "Contributors": "for whom the contributors work",
    "Maintained": "commits and answers of the last 90 days",
    "Signed-Releases": "attestations of published releases; the workflow release makes them",
    "Vulnerabilities": "open advisories of dependencies",
    "Webhooks": "secrets of webhooks",
}


def workflows() -> dict[str, str]:
    return {
        path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(".github/workflows/*.yml"))
    }


def used() -> list[tuple[str, str]]:
    """Return (workflow, action) of every step that uses an action of another repository."""
    return [(name, use) for name, text in workflows().items() for use in re.findall(r"uses: (\S+)", text)]


def binaries() -> list[str]:
    """Return the files that are programs, by their first bytes."""
    heads = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"!<arch>")
    folders = ("src", "reproduction", "tests", "docs", "release", "fuzz", "benchmarks", "conda")
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    kept = (path for path in files if "__pycache__" not in path.parts and path.suffix != ".so")
    return [str(path.relative_to(ROOT)) for path in kept if path.read_bytes()[:8].startswith(heads)]


def dangerous() -> list[str]:
    """Return lines of workflows that run a stranger's input: a tree with secrets, or text as a command."""
    found = []
    for name, text in workflows().items():
        found += [f"{name}: pull_request_target"] if "pull_request_target" in text else []
        found += [f"{name}: {line}" for line in re.findall(r"run: .*\$\{\{ *github\.event\.[^}]*\}\}", text)]
    return found


def permissions() -> list[str]:
    """Return the workflows whose top-level permissions are not exactly `contents: read`."""
    return [
        name
        for name, text in workflows().items()
        if not re.search(r"^permissions:\n  contents: read\n(?! )", text, re.M)
    ]


def checks() -> dict[str, tuple[bool, str]]:
    """Return, for every check that the tree can answer, whether it passes, and the reason."""
    actions = used()
    loose = sorted({use for _, use in actions if not COMMIT.search(use)})
    texts = "".join(workflows().values())
    security = ROOT / "SECURITY.md"
    stated = security.read_text(encoding="utf-8") if security.exists() else ""
    found = binaries()
    return {
        "Binary-Artifacts": (not found, ", ".join(found) or "no program among the files"),
        "Dangerous-Workflow": (not dangerous(), "; ".join(dangerous()) or "none runs a stranger's input"),
        "Dependency-Update-Tool": ((ROOT / ".github/dependabot.yml").exists(), "dependabot.yml"),
        "Fuzzing": (
            (ROOT / ".clusterfuzzlite/Dockerfile").exists() and any((ROOT / "fuzz").glob("fuzz_*.py")),
            "ClusterFuzzLite, targets in fuzz/",
        ),
        "License": ((ROOT / "LICENSE").exists(), "LICENSE, Apache-2.0"),
        "Packaging": ("gh-action-pypi-publish" in texts, "the workflow release publishes"),
        "Pinned-Dependencies": (
            not loose,
            f"{len(actions) - sum(use in loose for _, use in actions)} of {len(actions)} actions by commit"
            + (f"; by a name that can move: {', '.join(loose)}" if loose else ""),
        ),
        "SAST": ("codeql-action/analyze" in texts, "CodeQL for Python, C++ and workflows"),
        "SBOM": ((ROOT / "release/sbom.py").exists(), "CycloneDX in every wheel"),
        "Security-Policy": ("Report a vulnerability" in stated, "SECURITY.md"),
        "Token-Permissions": (
            not permissions(),
            ", ".join(permissions()) or "at top level every workflow may only read",
        ),
    }


def main() -> int:
    results = checks()
    for name, (passes, reason) in results.items():
        print(f"{'yes' if passes else 'NO':<8} {name:<24} {reason}")
    for name, subject in HOSTS.items():
        print(f"{'not here':<8} {name:<24} {subject}")
    print(
        f"{sum(passes for passes, _ in results.values())} of {len(results)} checks that the tree can answer "
        f"pass; {len(HOSTS)} need the host"
    )
    return 0 if all(passes for passes, _ in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
