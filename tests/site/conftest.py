"""A site's folder with the approved copy of 60 patients."""

import pytest

from patients import BY_ID, Patients
from unpooled.site.copy_folder import CopyFolder


@pytest.fixture
def patients():
    return Patients()


@pytest.fixture
def place(patients, tmp_path):
    place = CopyFolder(tmp_path / "north")
    place.make(patients.table(), BY_ID)
    place.approve("the officer")
    return place
