"""A site's folder with the approved summary table of 60 patients."""

import pytest

from patients import BY_ID, Patients
from unpooled.site.table_store import SummaryFolder


@pytest.fixture
def patients():
    return Patients()


@pytest.fixture
def place(patients, tmp_path):
    place = SummaryFolder(tmp_path / "north")
    place.make(patients.table(), BY_ID)
    place.approve("the officer")
    return place
