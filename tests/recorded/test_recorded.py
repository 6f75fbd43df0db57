"""Results are what they were: centres, history and bytes that left, of all that the package can run.

On a machine with the recorded fingerprint (processor, kernels, versions of libraries) every bit must be the
same. On another one floats must agree to a relative 1e-6, and digests and whole numbers, among them the
rounds, are not compared; nothing is skipped. ``python -m tests.recorded`` records anew; README.md lists
what was recorded anew, and why.
"""

import pytest
from tests.recorded import adapter as a
from tests.recorded import comparing
from tests.recorded.cases import CASES, perform

pytestmark = pytest.mark.long
RECORDED = comparing.load()


def test_every_case_is_recorded():
    assert sorted(RECORDED["cases"]) == sorted(CASES)
    assert comparing.PATH.stat().st_size < 300_000


def test_every_method_and_preset_has_a_case():
    for name, method in a.METHODS.items():
        assert any(case.startswith(f"method/{name}/") for case in CASES)
        for preset in (word for word in dir(method) if word.startswith("as_published")):
            here = f"preset/{name}/{preset}"
            assert any(case == here or case.startswith(f"{here}/") for case in CASES), here


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_recorded(name):
    exact = comparing.fingerprint() == RECORDED["fingerprint"]
    found = list(comparing.differences(RECORDED["cases"].get(name, {}), perform(name), exact=exact))
    assert not found, comparing.summary(name, found)
