"""Names that earlier pages imported still work, with a warning that says where they are now."""

import importlib
import subprocess
import sys
import warnings

import pytest

import unpooled

OLD = {
    "audit.attack": "in_process on_log probe",
    "audit.record": "read",
    "codec": "FloatArray size encode decode",
    "datasets": "load_penguins synthetic",
    "datasets.dual": "dual_problem",
    "guide": "citation",
    "messages": "Message Question Reply Stack Summable effective_size",
    "metrics": "calinski_harabasz davies_bouldin simplified_silhouette inertia",
    "partition": "dirichlet",
    "preparing": "Scaled standardise",
    "protocol": "Trace conduct each together total Steps",
    "running": "run Run",
    "secure_sum": "SecureSums",
    "site.explaining": "explain",
    "site.opening": "open_site",
    "summaries": "AskClusterSums AskLocalMeans AskMoments",
}


@pytest.mark.parametrize("module", OLD)
def test_a_moved_module_is_found_under_its_old_name(module):
    sys.modules.pop(f"unpooled.{module}", None)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = importlib.import_module(f"unpooled.{module}")
        for name in OLD[module].split():
            assert hasattr(found, name) or importlib.import_module(f"unpooled.{module}.{name}"), name
    assert any(f"unpooled.{module} is now unpooled." in str(one.message) for one in told)
    for name in [n for n in sys.modules if n.startswith(f"unpooled.{module.partition('.')[0]}")]:
        if isinstance(sys.modules[name].__loader__, unpooled._Moved):
            del sys.modules[name]


def test_they_are_the_same_things():
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from unpooled import metrics, partition\n"
        "from unpooled.messages import Question\n"
        "import unpooled.core, unpooled.analysis.metrics\n"
        "assert Question is unpooled.core.Question\n"
        "assert metrics.inertia is unpooled.analysis.metrics.inertia\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("unpooled.nothing")
