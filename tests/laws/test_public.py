"""The public face: its names, how quickly it is imported, and what it never imports."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools.check_docstrings import faults
from website.reference import public_names

import unpooled
from unpooled import algorithms, errors

pytestmark = pytest.mark.quick

SOURCE = Path(unpooled.__file__).parent


def modules() -> list[str]:
    """The package, its modules, and the methods; of the other packages what they export."""
    names = [m.name for m in pkgutil.iter_modules(unpooled.__path__, "unpooled.")]
    methods = [m.name for m in pkgutil.iter_modules(algorithms.__path__, "unpooled.algorithms.")]
    return ["unpooled", *(name for name in names if not name.endswith("__main__")), *methods]


def test_the_top_level_is_small():
    functions = {"cluster", "certify", "exact_kmeans", "read_summary"}
    submodules = {
        *("algorithms", "data", "errors", "evaluation", "federation", "kernels", "optimality", "privacy"),
        *("protocol", "site"),
    }
    estimators = {"FederatedFuzzyCMeans", "FederatedKMeans"}
    assert {*unpooled.__all__} == {*functions, *submodules, *estimators, "__version__"}
    assert all(inspect.ismodule(getattr(unpooled, name)) for name in submodules)
    assert unpooled.__all__ == sorted(unpooled.__all__, key=lambda name: (not name.isupper(), name))
    assert set(dir(unpooled)) >= set(unpooled.__all__)
    for name in unpooled.__all__:
        assert getattr(unpooled, name) is not None


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="module 'unpooled' has no attribute 'KMeans'"):
        unpooled.KMeans  # noqa: B018


def imported_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(' '.join({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_is_quick_because_heavy_modules_wait():
    heavy = {"numpy", "sklearn", "scipy", "rich", "typer", "jinja2", "matplotlib"}
    assert not imported_by("import unpooled") & heavy


def test_running_needs_numpy_only():
    program = (
        "from unpooled.algorithms import Lloyd\nfrom unpooled.federation import Simulation\n"
        "from unpooled.protocol import run\nimport numpy as np\n"
        "run(Lloyd(k=2), Simulation.from_rows({'a': np.arange(8.0)[:, None]}))"
    )
    loaded = imported_by(program)
    assert "numpy" in loaded
    assert not loaded & {"sklearn", "scipy", "rich", "typer", "jinja2", "matplotlib", "pandas", "joblib"}


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
    return names


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_that_runs_what_it_reads_is_imported(path):
    assert not imports_of(path) & {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    assert "allow_pickle=True" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", modules())
def test_every_public_thing_is_documented(name):
    module = importlib.import_module(name)
    assert module.__doc__
    for label in getattr(module, "__all__", vars(module)):
        thing = getattr(module, label)
        mine = getattr(thing, "__module__", "").startswith("unpooled.") and not label.startswith("_")
        if mine and (inspect.isclass(thing) or inspect.isfunction(thing)):
            # the signature that a dataclass writes itself is not a docstring
            assert thing.__doc__, f"{name}.{label} has no docstring"
            assert not thing.__doc__.startswith(f"{label}("), f"{name}.{label} has no docstring"


@pytest.mark.parametrize(("name", "thing"), public_names().items(), ids=public_names())
def test_every_parameter_of_a_public_name_is_documented(name, thing):
    assert [*faults(thing)] == []


def test_one_tree_of_errors():
    for name, error in inspect.getmembers(errors, inspect.isclass):
        assert issubclass(error, errors.UnpooledError)
        assert name in errors.__doc__
    for name in ("InputError", "CodecError", "CheckpointError"):
        assert issubclass(getattr(errors, name), ValueError)
