"""Erasures on real folders: erased people do not come back, whichever command, backup or kill follows."""

import shutil

import numpy as np
import pytest

from patients import BY_ID, Patients, answered, asked
from unpooled.data import Table
from unpooled.data.summary_table import to_csv
from unpooled.errors import InputError, LedgerError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.renew import ERASED
from unpooled.privacy.secure_sum.stage_messages import AskKeys
from unpooled.protocol import codec
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.site.audit.overview import read
from unpooled.site.erase_people import erase
from unpooled.site.erasures import Erasures
from unpooled.site.open_site import open_site
from unpooled.site.people_register import Registry
from unpooled.site.policy import parse
from unpooled.site.table_changes import forget, renew
from unpooled.site.table_store import SECOND_TABLE, SummaryFolder

DP = """format = 1
[protect]
mode = "dp"
[dp]
epsilon_total = 1
[domain]
rows = 500
columns = ["age"]
lower = [0]
upper = [120]
"""


def tables(place):
    return sorted(path.parent.name for path in place.folder.glob("summary-*/table.csv"))


# ---------------------------------------------------------------- by another way


def test_a_second_table_that_would_not_recognise_who_was_erased_is_not_made(place, patients):
    table, before = patients.table(), place.digest
    place.make(
        table,
        SummarySettings(
            one_row_per_person=True, no_sensitive_columns=True, min_group_size=3, study_columns=("age", "lab")
        ),
        second_table=SECOND_TABLE,
    )  # nobody was erased yet
    place.make(table, BY_ID, second_table=SECOND_TABLE)
    place.approve()
    erase(place, ["P7"])
    kept = place.digest
    for rows in (table, np.array([row[:1] for row in patients.rows.values()])):
        with pytest.raises(
            InputError, match="1 person was erased here, and the summary table has no person column"
        ):
            place.make(
                rows,
                SummarySettings(one_row_per_person=True, no_sensitive_columns=True, min_group_size=3),
                second_table=SECOND_TABLE,
            )
    others = {**table.categories, "id": tuple(f"X{i}" for i in range(60))}
    with pytest.raises(
        InputError, match=r"0 of \d+ disclosed people are in column id. They would not be recognised"
    ):
        place.make(Table(table.names, table.kinds, others, table.values), BY_ID, second_table=SECOND_TABLE)
    assert place.digest == kept != before
    assert place.make(table, BY_ID, second_table=SECOND_TABLE).people.sum() == 59
    place.approve()
    assert erase(place, ["P8"]).groups == 1


@pytest.mark.parametrize("rules", ['format = 1\n[protect]\nmode = "raw"\n', DP])
def test_rows_are_not_answered_from_where_somebody_was_erased(place, patients, rules):
    erase(place, ["P7"])
    shutil.rmtree(place.path)  # noise is not answered with where a summary table is
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"1 person was erased here, and mode = .* table with --person"):
            open_site("north", patients.table(), parse(rules), place.folder)
        (place.folder / "registry.sqlite").unlink(missing_ok=True)  # the erasure is still known
    (place.folder / "erasures.json").unlink()
    open_site("north", patients.table(), parse(rules), place.folder).close()


def test_a_summary_table_without_ids_that_an_earlier_version_made_is_not_answered_from(
    place, patients, monkeypatch
):
    erase(place, ["P7"])
    with monkeypatch.context() as patch:
        patch.setattr(SummaryFolder, "_without_erased", lambda self, table, settings: table)
        place.make(
            patients.table(),
            SummarySettings(
                one_row_per_person=True,
                no_sensitive_columns=True,
                min_group_size=3,
                study_columns=("age", "lab"),
            ),
            second_table=SECOND_TABLE,
        )
    place.approve()
    with pytest.raises(
        LedgerError, match="a summary table without a person column would disclose them again"
    ):
        open_site("north", folder=place.folder)


# ---------------------------------------------------------------- from a backup


def test_a_registry_of_before_an_erasure_is_found_though_nothing_was_opened_since(place, patients, tmp_path):
    answered(place)
    shutil.copytree(place.folder, tmp_path / "old")
    erase(place, ["P7"], "officer")
    assert read(place.folder).intact
    shutil.copytree(place.folder, tmp_path / "new")
    for path in place.folder.glob("summary*"):
        shutil.rmtree(path)
    shutil.copytree(tmp_path / "old" / "summary", place.path)
    shutil.copy(tmp_path / "old" / "registry.sqlite", place.folder)
    for call in (
        lambda: open_site("north", folder=place.folder),
        lambda: renew(place, patients.table()),
        lambda: place.approve(),
        lambda: erase(place, ["P8"]),
        lambda: place.make(patients.table(), BY_ID, second_table=SECOND_TABLE),
    ):
        with pytest.raises(LedgerError, match=r"registry of people is older than erasures\.json"):
            call()
    assert "older than erasures.json" in str(read(place.folder).faults)
    shutil.rmtree(place.folder)
    shutil.copytree(tmp_path / "new", place.folder)
    answered(place)
    assert renew(place, patients.table()).states["P7"] == ERASED


def test_without_its_registry_a_folder_with_erasures_gets_no_second_table(place, patients):
    erase(place, ["P7"])
    (place.folder / "registry.sqlite").unlink()
    with pytest.raises(LedgerError, match=r"older than erasures\.json, or lost"):
        place.make(patients.table(), BY_ID, second_table=SECOND_TABLE)
    assert not (place.folder / "registry.sqlite").exists()


def test_erasures_that_were_changed_are_a_fault(place):
    erase(place, ["P7"])
    path = place.folder / "erasures.json"
    path.write_text('[{"utc": "2026-01-01T00:00:00+00:00", "groups": 1, "by": "officer"}]')
    with pytest.raises(LedgerError, match="it lacks the erasure of 2026-01-01"):
        open_site("north", folder=place.folder)
    path.write_text("{}")
    with pytest.raises(LedgerError, match="not a list of erasures"):
        open_site("north", folder=place.folder)


# ---------------------------------------------------------------- while the site is running


def staged(site, epoch):
    request = Request(RequestId("sums", 0, 0, 0), (Part(STAGE, AskKeys(epoch), None, 0),))
    return codec.unwrap(site.respond(codec.wrap(request)), expect=Response).replies[0]


def test_repeated_requests_and_stages_of_sums_are_refused_after_an_erasure(place):
    site = open_site("north", folder=place.folder)
    first = asked(site)
    assert codec.encode(asked(site)) == codec.encode(first)
    assert not isinstance(staged(site, "e"), Refusal)
    erase(place, ["P7"])
    for again in (asked(site), staged(site, "e"), staged(site, "f")):
        assert isinstance(again, Refusal)
        assert "somebody was erased" in again.reason
    site.close()


# ---------------------------------------------------------------- tables that are left, and kills


def test_an_erasure_empties_what_earlier_registries_showed(tmp_path):
    patients, place = Patients(), SummaryFolder(tmp_path)
    place.make(
        patients.table(),
        SummarySettings(
            one_row_per_person=True, no_sensitive_columns=True, min_group_size=3, study_columns=("age",)
        ),
    )  # nobody knows who is in which group
    place.approve()
    for g in (4, 3):  # a registry of its own for each
        place.make(
            patients.table(),
            SummarySettings(min_group_size=g, person="id", no_sensitive_columns=True),
            second_table=SECOND_TABLE,
        )
        place.approve()
    patients.come(12)
    renew(place, patients.table(), extra_spread=1.0)
    place.approve()
    late = next(
        person
        for person in sorted(patients.rows)
        if person not in {f"P{i}" for i in range(60)} and len(_groups(place, person)) == 1
    )
    assert len(tables(place)) == 3
    done = erase(place, [late])
    assert len(done.emptied) == 3  # both of earlier registries, and that which showed them
    assert len(tables(place)) == 1  # the first of this registry, in which they was not
    erase(place, ["P7"])
    assert tables(place) == []


def _groups(place, person):
    with Registry.open(place.folder) as registry:
        return registry.groups_of(registry.person(person))


@pytest.mark.parametrize("moment", ["_recover_renewal", "empty_tables"])
def test_a_kill_after_the_registry_has_the_erasure_leaves_no_table(place, monkeypatch, moment):
    before = to_csv(place.read())

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SummaryFolder, moment, killed)
        with pytest.raises(KeyboardInterrupt):
            erase(place, ["P7"])
    assert Erasures(place.folder).unfinished
    answered(place)
    assert not Erasures(place.folder).unfinished
    assert len(Erasures(place.folder).read()) == 1
    assert tables(place) == []
    assert len(list(place.folder.glob("summary-*/about.json"))) == 1
    assert to_csv(place.read()) != before
    assert not any(path.read_text() == before for path in place.folder.rglob("table.csv"))


def test_a_kill_before_the_registry_has_the_erasure_leaves_everything_as_it_was(place, monkeypatch):
    answered(place)
    erase(place, ["P8"])
    before, erasures = to_csv(place.read()), Erasures(place.folder).read()
    site = open_site("north", folder=place.folder)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "erase", killed)
        with pytest.raises(KeyboardInterrupt):
            erase(place, ["P7"])
    assert "somebody was erased" in asked(site, run="meanwhile").reason
    assert to_csv(place.read()) == before  # and settles what was begun
    assert Erasures(place.folder).read() == erasures
    assert not isinstance(asked(site, run="afterwards"), Refusal)
    site.close()
    assert not place.pending
    assert erase(place, ["P7"]).groups == 1


def test_a_table_that_an_erasure_is_to_delete_is_deleted_by_forget_too(place, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SummaryFolder, "_recover_renewal", killed)
        with pytest.raises(KeyboardInterrupt):
            erase(place, ["P7"])
    assert forget(place, "2020-01-01") == ()
    assert tables(place) == []


def test_what_was_disclosed_of_an_erased_group_is_not_left_in_the_registrys_file(place, patients):
    patients.leave(2)
    patients.come(8)
    renew(place, patients.table(), extra_spread=1.0)  # whose plan is dropped by the erasure
    with Registry.open(place.folder) as registry:
        (group,) = registry.groups_of(registry.person("P7"))
        ((cells,),) = registry._db.execute("SELECT cells FROM groups WHERE number = ?", (group,))
        ((plan,),) = registry._db.execute("SELECT plan FROM proposal")
    file = place.folder / "registry.sqlite"
    assert cells.encode() in file.read_bytes()
    erase(place, ["P7"])
    assert cells.encode() not in file.read_bytes()
    assert plan[-300:].encode() not in file.read_bytes()
