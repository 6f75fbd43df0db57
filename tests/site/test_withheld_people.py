"""The next process, too, knows who is withheld from later summary tables."""

from patients import BY_ID, Patients
from unpooled.site.people_register import Registry
from unpooled.site.table_changes import renew
from unpooled.site.table_store import SummaryFolder


def test_the_registry_keeps_who_holds_a_group_open(tmp_path):
    patients, place = Patients(), SummaryFolder(tmp_path / "north")
    place.make(patients.table(), BY_ID)
    place.approve("the officer")
    withheld = {}
    for _ in range(3):
        patients.leave(4)
        patients.come(9)
        withheld |= renew(place, patients.table(), extra_spread=1.0).withheld
        place.approve("the officer")
    assert withheld
    with Registry.open(place.folder) as registry:
        assert registry.history().withheld == {number: frozenset(who) for number, who in withheld.items()}
