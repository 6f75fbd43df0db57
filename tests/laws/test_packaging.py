"""The package as strangers get it: one version, light to import, small, the same bytes twice, on numpy."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import unpooled

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "release"))

import artefacts  # noqa: E402
import prepare  # noqa: E402
import scorecard  # noqa: E402

VERSION = unpooled.__version__


# ---------------------------------------------------------------- versions


def test_the_version_has_one_source_and_what_repeats_it_agrees():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]
    assert importlib.metadata.version("unpooled") == VERSION == prepare.version_of(ROOT)
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'version: "{VERSION}"\n' in (ROOT / "conda/recipe.yaml").read_text(encoding="utf-8")


@pytest.fixture
def tree(tmp_path):
    for name in ("src/unpooled/__init__.py", "CITATION.cff", "CHANGELOG.md", "conda/recipe.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_version_is_written_everywhere_and_its_tag_is_checked(tree):
    prepare.prepare(tree, "9.1.0", "2031-02-03")
    assert prepare.check(tree, "v9.1.0") == "9.1.0"
    changes = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]\n\n## [9.1.0] - 2031-02-03\n" in changes
    assert "### Added" in changes.partition("## [9.1.0]")[2]
    assert "Coming as" not in changes
    with pytest.raises(prepare.NotReady, match=r"the tag is v9.2.0, the version 9.1.0"):
        prepare.check(tree, "v9.2.0")
    with pytest.raises(prepare.NotReady, match=r"has a section for 9.1.0 already"):
        prepare.prepare(tree, "9.1.0", "2031-02-03")


@pytest.mark.parametrize("wrong", ["9", "v9.1.0", "9.1.0-final", "9.1.0\n"])
def test_an_invalid_version_is_refused_and_nothing_is_written(tree, wrong):
    before = [(tree / name).read_bytes() for name in ("CITATION.cff", "CHANGELOG.md")]
    with pytest.raises(prepare.NotReady, match="is not a version"):
        prepare.prepare(tree, wrong, "2031-02-03")
    assert [(tree / name).read_bytes() for name in ("CITATION.cff", "CHANGELOG.md")] == before


def test_a_tag_without_a_section_of_the_changelog_is_not_a_release(tree):
    text = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    (tree / "CHANGELOG.md").write_text(re.sub(r"## \[\d.*", "", text), encoding="utf-8")
    with pytest.raises(prepare.NotReady, match=re.escape(f"CHANGELOG.md: no section for {VERSION}")):
        prepare.check(tree, f"v{VERSION}")


def test_the_recipe_for_conda_asks_for_what_the_package_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    recipe = (ROOT / "conda/recipe.yaml").read_text(encoding="utf-8")
    asked = re.findall(r"^    - (.+)$", recipe, re.M)
    for requirement in (*project["project"]["dependencies"], *project["build-system"]["requires"]):
        assert requirement.replace(">=", " >=") in asked
    assert f"python {project['project']['requires-python']}" in asked


# ---------------------------------------------------------------- the package


def test_importing_the_package_loads_nothing_but_itself_and_the_standard_library():
    code = (
        "import sys; before = set(sys.modules); import unpooled; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert set(loaded.split()) - sys.stdlib_module_names == {"unpooled"}


@pytest.fixture(scope="module")
def pure(tmp_path_factory):
    """The wheel for any machine, built twice in different folders."""
    pytest.importorskip("scikit_build_core")
    made = []
    for turn in range(2):
        place = tmp_path_factory.mktemp(f"place-{turn}") / ("tree" + "-again" * turn)
        for name in ("src", "release"):
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        for name in ("pyproject.toml", "README.md", "LICENSE", "CMakeLists.txt"):
            shutil.copy(ROOT / name, place / name)
        code = "import backend, sys; print(backend.build_wheel(sys.argv[1]))"
        environment = {**os.environ, "UNPOOLED_PURE": "1", "SOURCE_DATE_EPOCH": "1700000000"}
        done = subprocess.run(
            [sys.executable, "-c", code, str(place)],
            cwd=place,
            env={**environment, "PYTHONPATH": str(place / "release")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        made.append(next(place.glob("*.whl")))
    return made


def test_the_wheel_for_any_machine_is_small_whole_and_the_same_twice(pure):
    first, second = pure
    assert first.name == f"unpooled-{VERSION}-py3-none-any.whl"
    assert artefacts.digest(first) == artefacts.digest(second)
    report = artefacts.check_file(first, VERSION, (str(ROOT), str(first.parent)))
    assert "as RECORD says, numpy, bill of 5" in report


def test_its_bill_of_materials_names_what_it_requires(pure):
    with zipfile.ZipFile(pure[0]) as wheel:
        bill = json.loads(wheel.read(f"unpooled-{VERSION}.dist-info/sboms/unpooled.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/unpooled@{VERSION}"
    asked = {part["name"]: part["properties"][1]["value"] for part in bill["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {name + wanted for name, wanted in asked.items()} == set(project["dependencies"])


def test_a_changed_wheel_is_found(pure, tmp_path):
    changed = tmp_path / pure[0].name
    with zipfile.ZipFile(pure[0]) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            extra = b"\n# one line more" if name == "unpooled/errors.py" else b""
            new.writestr(name, old.read(name) + extra, zipfile.ZIP_DEFLATED)
    with pytest.raises(prepare.NotReady, match=r"unpooled/errors.py is not what RECORD says"):
        artefacts.check_file(changed, VERSION)
    with pytest.raises(prepare.NotReady, match="not of version 9"):
        artefacts.check_file(changed, "9")


def test_it_clusters_on_numpy_and_the_exact_solver_names_what_it_needs(pure, tmp_path):
    code = f"""
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "frozen" in finder.__module__]
sys.path.insert(0, {str(tmp_path)!r})
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from unpooled import FederatedKMeans, exact_kmeans, kernels
    model = FederatedKMeans(n_clusters=2, random_state=0, protect="summary")
    model.fit([[0.0], [0.2], [9.0], [9.2]] * 9, sites=["a"] * 18 + ["b"] * 18)
assert kernels.__file__.startswith({str(tmp_path)!r}), kernels.__file__
warned = [str(one.message) for one in caught if "numpy" in str(one.message)]
print(kernels.BACKEND, sorted(model.cluster_centers_.round().ravel().tolist()), len(warned))
X = [[0.0], [1.0], [5.0]]
dual = FederatedKMeans(2, method="dual")
for solve in (lambda: exact_kmeans(X, 2), lambda: dual.fit(X, sites=["a", "b", "b"])):
    try:
        solve()
    except Exception as error:
        print(type(error).__name__, error)
"""
    with zipfile.ZipFile(pure[0]) as wheel:
        wheel.extractall(tmp_path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, *errors = done.stdout.splitlines()
    assert first == "numpy [0.0, 9.0] 1"
    assert len(errors) == 2
    for line in errors:
        assert line.startswith("BadInput exact solving and its bounds need the compiled package"), line


# ---------------------------------------------------------------- trust


def test_what_a_scorecard_can_read_in_the_tree_holds():
    assert {name: why for name, (holds, why) in scorecard.checks().items() if not holds} == {}


def test_an_action_by_a_name_that_can_move_is_found(monkeypatch):
    named = "steps:\n      - uses: actions/checkout@v4\n"
    monkeypatch.setattr(scorecard, "workflows", lambda: {"tests.yml": named})
    holds, why = scorecard.checks()["Pinned-Dependencies"]
    assert not holds
    assert why == "0 of 1 actions by commit; by a name that can move: actions/checkout@v4"
