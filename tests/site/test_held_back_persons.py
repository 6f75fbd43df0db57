"""Who is held back from later copies is known to the next process, too."""

from patients import BY_ID, Patients
from unpooled.site.copy_changes import renew
from unpooled.site.copy_folder import CopyFolder
from unpooled.site.registry import Registry


def test_the_registry_keeps_who_holds_a_group_open(tmp_path):
    patients, place = Patients(), CopyFolder(tmp_path / "north")
    place.make(patients.table(), BY_ID)
    place.approve("the officer")
    told = {}
    for _ in range(3):
        patients.leave(4)
        patients.come(9)
        told |= renew(place, patients.table(), wider=1.0).keepers
        place.approve("the officer")
    assert told
    with Registry.opened(place.folder) as registry:
        assert registry.history().keepers == {number: frozenset(who) for number, who in told.items()}
