"""How many random cases a test draws: few in the default suite, many under the marker ``long``."""

import pytest


def amounts(few: int, many: int) -> list:
    """Return the parameters of a fixture or test that runs with both amounts."""
    return [few, pytest.param(many, marks=pytest.mark.long)]
