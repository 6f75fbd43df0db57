"""Data that change, on real folders: renewal, approval, erasure, retention, kills and restored backups."""

import base64
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import time

import numpy as np
import pytest

from combinations import fewer_than
from open_files import leaks
from patients import BY_ID, Patients, answered, asked
from unpooled.data import Table
from unpooled.data.summary_table import to_csv
from unpooled.errors import InputError, LedgerError, NotApprovedError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.renew import ERASED, NEWLY_DISCLOSED, STILL_DISCLOSED, WITHHELD
from unpooled.privacy.microaggregation.summarize import assemble_summary
from unpooled.protocol.messages import Refusal
from unpooled.site.audit.overview import read
from unpooled.site.erase_people import erase
from unpooled.site.log import Log
from unpooled.site.open_site import open_site
from unpooled.site.people_register import Registry
from unpooled.site.policy import parse
from unpooled.site.table_changes import forget, renew
from unpooled.site.table_store import SECOND_TABLE, SummaryFolder


def test_a_renewal_is_answered_from_once_it_is_approved_and_not_before(place, patients):
    before = to_csv(place.read())
    gone, new = patients.leave(2), patients.come(8)
    found = renew(place, patients.table())
    assert found.figures["left"] == 2
    assert all(found.states[person] in (NEWLY_DISCLOSED, "pending, new") for person in new)
    assert set(found.states) == set(patients.rows)
    assert not set(gone) & set(found.states)
    assert to_csv(place.read()) == before
    site = open_site("north", folder=place.folder)
    assert site.rows.digest == place.read().digest
    site.close()
    assert place.pending
    digest = place.approve()
    assert not place.pending
    assert place.digest == digest
    assert to_csv(place.read()) == to_csv(found.summary) != before
    site = open_site("north", folder=place.folder)
    site.close()
    (kept,) = place.folder.glob("summary-*")
    assert (kept / "table.csv").read_text() == before
    assert read(place.folder).intact


def test_groups_that_nobody_left_stay_as_they_were_disclosed(place, patients):
    old = to_csv(place.read()).splitlines()[1:]
    patients.leave(1)
    found = renew(place, patients.table())
    new = to_csv(found.summary).splitlines()[1:]
    assert len(set(old) - set(new)) == 1
    assert len(found.retired) == 1


def test_where_nothing_changed_nothing_is_written(place, patients):
    shuffled = patients.table()
    order = np.random.default_rng(1).permutation(len(shuffled))
    found = renew(place, Table(shuffled.names, shuffled.kinds, shuffled.categories, shuffled.values[order]))
    assert found.empty
    assert set(found.states.values()) == {STILL_DISCLOSED}
    assert not place.pending


def test_changed_values_take_the_group_out_or_are_left_as_they_are(place, patients):
    person = next(iter(patients.rows))
    patients.change(person)
    assert renew(place, patients.table(), keep_changed=True).empty
    found = renew(place, patients.table())
    assert (found.figures["changed"], len(found.retired)) == (1, 1)
    assert list(found.states.values()).count(WITHHELD) == 1


def test_many_months_of_a_registry_on_disk(place, patients):
    """What is read from disk is what was planned; nobody is ever with the same companion twice."""
    for month in range(8):
        patients.leave(2)
        patients.change(str(patients.rng.choice(sorted(patients.rows))))
        patients.come(3)
        if renew(place, patients.table(), made=f"2026-{month + 1:02}-01").empty:
            continue
        place.approve()
        with Registry.open(place.folder) as registry:
            history = registry.history()
            assert registry.current == place.digest
        assert place.read().people.sum() == sum(len(history.groups[n].members) for n in history.live)
    met: set[frozenset[str]] = set()
    for group in history.groups.values():
        pairs = {frozenset((a, b)) for a in group.members for b in group.members if a < b}
        assert not met & pairs
        met |= pairs
    assert any(len(history.groups_of(person)) > 1 for person in history.people)


def test_without_ids_a_summary_table_cannot_be_renewed(tmp_path, patients):
    place = SummaryFolder(tmp_path)
    table = patients.table()
    place.make(table, SummarySettings(one_row_per_person=True, no_sensitive_columns=True, min_group_size=3))
    place.approve()
    with pytest.raises(InputError, match="its rows have no person column"):
        renew(place, table)
    with pytest.raises(InputError, match="its rows have no person column"):
        erase(place, ["P1"])
    assert not (tmp_path / "registry.sqlite").exists()


def test_what_cannot_be_a_renewal_is_refused(place, patients, tmp_path):
    table = patients.table()
    others = {**table.categories, "id": tuple(f"X{i}" for i in range(60))}
    other = Table(table.names, table.kinds, others, table.values)
    with pytest.raises(InputError, match="0 of 60 disclosed people are in this table"):
        renew(place, other)
    columns = {name: table.values[:, table.index(name)] for name in ("age", "lab")}
    with pytest.raises(InputError, match="no column 'sex'"):
        renew(place, Table.from_columns({"id": list(patients.rows), **columns}))
    with pytest.raises(InputError, match="column sex is a number column"):
        renew(place, Table.from_columns({"id": list(patients.rows), **columns, "sex": np.ones(60)}))
    fresh = SummaryFolder(tmp_path / "fresh")
    fresh.make(table, BY_ID)
    with pytest.raises(InputError, match="nobody approved the summary table yet"):
        renew(fresh, table)
    assert not place.pending


def test_no_id_and_no_value_is_on_disk(tmp_path):
    """After all that a folder sees: every file, the cells of every database, the packed parts of the log."""
    patients, place = Patients(called="patient-"), SummaryFolder(tmp_path / "north")
    place.make(patients.table(), BY_ID)
    place.approve("the officer")
    answered(place)
    known = dict(patients.rows)
    patients.leave(2)
    patients.come(8)
    known |= patients.rows
    renew(place, patients.table(), extra_spread=1.0)
    place.approve()
    answered(place)
    erase(place, ["patient-7", "patient-999"], "officer", block_unknown=True)
    answered(place)
    with Registry.open(place.folder) as registry:
        medians = [spread.median for spread in registry.scales.spreads.values()]
    numbers = [
        value
        for row in known.values()
        for value in row[:2]
        if not np.isnan(value) and value not in medians  # of an odd number of people, one has it
    ]
    assert len(numbers) > 120
    assert {path.name for path in place.folder.glob("*.sqlite")} == {"registry.sqlite", "ledger.sqlite"}
    assert leaks(place.folder, [*known, "patient-999"], numbers) == []
    with Registry.open(place.folder) as registry:
        assert len(registry.person("patient-1")) == 32
    assert os.stat(place.folder / "registry.sqlite").st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "how", ["csv", "id cell", "value cell", "json", "utf-16", "base64", "hex", "array", "rounded", "name"]
)
def test_the_search_for_ids_and_values_finds_them_however_they_are_written(tmp_path, how):
    person, value = "patient-7", 43.218765432
    if "cell" in how:
        with contextlib.closing(sqlite3.connect(tmp_path / "a.sqlite")) as db:
            db.execute("CREATE TABLE leak (id TEXT, age REAL)")
            db.execute("INSERT INTO leak VALUES (?, ?)", (person, 0.0) if how == "id cell" else ("x", value))
            db.commit()
    else:
        printed = {
            "csv": f"id,age\n{person},1\n".encode(),
            "json": json.dumps({"a": {person: 1}}).encode(),
            "utf-16": f"a {person}".encode("utf-16"),
            "base64": b'{"answer":"' + base64.b64encode(f"xy {person} z".encode()) + b'"}',
            "hex": f"a {person} b".encode().hex().encode(),
            "array": np.array([1.0, value]).tobytes(),
            "rounded": f"1,{value:.6f}".encode(),
            "name": b"",
        }[how]
        (tmp_path / (f"{person}.csv" if how == "name" else "file")).write_bytes(printed)
    assert leaks(tmp_path, [person], [value])
    assert leaks(tmp_path, ["patient-70", "patient-"], [value + 1e-3]) == []


# ---------------------------------------------------------------- erasure and retention


def test_an_erasure_takes_the_group_out_at_once_and_for_ever(place, patients):
    old = to_csv(place.read()).splitlines()[1:]
    with pytest.raises(InputError, match="not known here: nobody"):
        erase(place, ["P7", "nobody"], by="officer")
    with pytest.raises(InputError, match="an id is empty"):
        erase(place, ["P7", ""])
    assert to_csv(place.read()).splitlines()[1:] == old
    done = erase(place, ["P7", "nobody"], by="officer", block_unknown=True)
    assert (done.groups, done.never_disclosed) == (1, ("nobody",))
    assert 3 <= done.people <= 5
    new = to_csv(place.read()).splitlines()[1:]
    assert len(old) - len(new) == 1
    assert set(new) < set(old)
    assert place.approved  # rows of an approved summary table
    open_site("north", folder=place.folder).close()
    found = renew(place, patients.table())
    assert found.states["P7"] == ERASED
    place.approve()
    patients.leave(1)
    assert renew(place, patients.table()).states["P7"] == ERASED
    (kept,) = {path.parent for path in done.emptied[0].glob("about.json")}
    assert not (kept / "table.csv").exists()


def test_an_erased_person_is_in_no_summary_table_that_is_made_anew(place, patients):
    erase(place, ["P7"])
    summary = place.make(patients.table(), BY_ID, second_table=SECOND_TABLE)
    assert summary.people.sum() == 59
    place.approve()
    assert renew(place, patients.table()).states["P7"] == ERASED
    assert erase(place, ["P8"]).groups == 1


def test_a_site_that_is_running_stops_answering_when_somebody_is_erased(place):
    site = open_site("north", folder=place.folder)
    try:
        assert not isinstance(asked(site), Refusal)
        erase(place, ["P7"])
        assert "somebody was erased" in asked(site, 1).reason
    finally:
        site.close()
    site = open_site("north", folder=place.folder)
    assert "Start a new run" in asked(site, 2).reason  # of the run that they was seen in
    assert not isinstance(asked(site, 3, run="anew"), Refusal)
    site.close()


def test_an_erasure_drops_a_renewal_that_waits(place, patients):
    patients.leave(1)
    renew(place, patients.table())
    erase(place, ["P7"])
    assert not place.pending
    before = place.digest
    assert place.approve() == before  # of the summary table itself, once more


def test_a_summary_table_without_any_group_left_is_not_answered_from(tmp_path):
    patients = Patients(7)
    place = SummaryFolder(tmp_path)
    place.make(patients.table(), SummarySettings(min_group_size=4, person="id", no_sensitive_columns=True))
    place.approve()
    erase(place, ["P0"])
    assert len(place.read()) == 0
    with pytest.raises(InputError, match="the summary table has no group left"):
        open_site("north", folder=tmp_path)
    patients.come(6)
    renew(place, patients.table())
    place.approve()
    open_site("north", folder=tmp_path).close()


def test_earlier_tables_are_deleted_by_date(place, patients):
    patients.leave(2)
    patients.come(6)
    renew(place, patients.table(), made="2030-01-01")
    place.approve()
    assert forget(place, "2020-01-01") == ()
    (kept,) = forget(place, "2029-01-01")
    assert sorted(path.name for path in kept.iterdir()) == ["about.json", "approved.json"]
    assert place.read().made == "2030-01-01"
    with pytest.raises(InputError, match="must be a date"):
        forget(place, "last year")


# ---------------------------------------------------------------- lost, older and changed files


@pytest.mark.parametrize("rotated", [False, True])
def test_a_lost_or_older_registry_is_found(place, patients, rotated):
    answered(place)
    shutil.copy(place.folder / "registry.sqlite", place.folder / "backup")
    shutil.copytree(place.path, place.folder / "backup-table")
    patients.leave(2)
    patients.come(6)
    renew(place, patients.table())
    place.approve()
    answered(place)
    if rotated:
        log = Log(place.folder / "log.jsonl")
        assert log.rotate()
        log.close()
    newest = (place.folder / "registry.sqlite").read_bytes()
    shutil.copy(place.folder / "backup", place.folder / "registry.sqlite")
    with pytest.raises(LedgerError, match="not the one that the registry names"):
        open_site("north", folder=place.folder)
    for call in (lambda: renew(place, patients.table()), lambda: erase(place, ["P1"])):
        with pytest.raises(LedgerError, match="not the one that the registry names"):
            call()
    os.rename(place.path, place.folder / "newest-table")
    shutil.copytree(
        place.folder / "backup-table", place.path
    )  # summary table and registry of the same old day
    for call in (
        lambda: open_site("north", folder=place.folder),
        lambda: renew(place, patients.table()),
        lambda: place.approve(),
        lambda: erase(place, ["P1"]),
        lambda: place.make(patients.table(), BY_ID, second_table=SECOND_TABLE),
    ):
        with pytest.raises(LedgerError, match="registry of people is lost, or older than the log"):
            call()
    assert not read(place.folder).intact
    (place.folder / "registry.sqlite").unlink()
    for call in (lambda: open_site("north", folder=place.folder), lambda: renew(place, patients.table())):
        with pytest.raises(LedgerError, match="registry of people is lost"):
            call()
    assert not (place.folder / "registry.sqlite").exists()
    about = place.path / "about.json"
    ready = about.read_text()
    about.write_text(ready.replace('"registry": true', '"registry": false'))
    with pytest.raises(LedgerError, match="registry of people is lost"):
        open_site("north", folder=place.folder)
    about.write_text(ready)
    shutil.rmtree(place.path)
    os.rename(place.folder / "newest-table", place.path)
    (place.folder / "registry.sqlite").write_bytes(newest)
    open_site("north", folder=place.folder).close()
    assert read(place.folder).intact


def test_a_log_that_is_older_than_the_registry_is_found(place, patients):
    answered(place)
    old = (place.folder / "log.jsonl").read_bytes()
    answered(place)
    patients.leave(2)
    patients.come(6)
    renew(place, patients.table())
    place.approve()
    (place.folder / "log.jsonl").write_bytes(old)
    with pytest.raises(LedgerError, match="the log is lost, or older than the registry"):
        open_site("north", folder=place.folder)


def test_a_registry_that_somebody_changed_is_not_renewed_from(place, patients):
    with Registry.open(place.folder) as registry:
        registry._db.execute("DELETE FROM members WHERE person = ?", (registry.person("P3"),))
    with pytest.raises(LedgerError, match="another program changed"):
        renew(place, patients.table())
    (place.folder / "registry.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(LedgerError, match="not a registry"):
        renew(place, patients.table())


def test_a_summary_table_of_a_registry_that_was_deleted_is_not_made_again_without_words(place, patients):
    shutil.rmtree(place.path)
    with pytest.raises(InputError, match="the registry names a summary table"):
        place.make(patients.table(), BY_ID)
    place.make(patients.table(), BY_ID, second_table=SECOND_TABLE)
    with pytest.raises(NotApprovedError):
        open_site("north", folder=place.folder)
    place.approve()
    open_site("north", folder=place.folder).close()


def test_without_an_officer_the_registry_takes_the_first_summary_table_when_the_site_opens(
    tmp_path, patients
):
    rules = parse('format = 1\n[protect]\nauto_approve = true\nno_sensitive_columns = true\nperson = "id"')
    open_site("north", patients.table(), rules, tmp_path).close()
    with Registry.open(tmp_path) as registry:
        assert registry.current == SummaryFolder(tmp_path).digest
    patients.leave(3)
    patients.come(9)
    renew(SummaryFolder(tmp_path), patients.table())
    site = open_site("north", policy=rules, folder=tmp_path)
    assert SummaryFolder(tmp_path).pending  # a renewal needs somebody's approval
    site.close()


# ---------------------------------------------------------------- kill -9


def work(place: SummaryFolder, patients: Patients, ready: int) -> None:
    """Months of renewals, approvals and erasures, until somebody kills the process; tells of each step."""
    while True:
        patients.leave(2)
        patients.come(4)
        os.write(ready, b".")
        renew(place, patients.table(), extra_spread=1.0)
        os.write(ready, b".")
        place.approve()
        os.write(ready, b".")
        erase(place, [str(patients.rng.choice(sorted(patients.rows)))], block_unknown=True)


def test_kill_9_at_any_time_leaves_one_summary_table_that_the_registry_names(place, patients):
    rng, summaries = np.random.default_rng(5), set()
    for attempt in range(10):
        patients.rng = np.random.default_rng(attempt)
        reader, ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                work(place, patients, ready)
            os._exit(1)
        os.close(ready)
        for _ in range(1 + attempt % 5):
            assert os.read(reader, 1)
        time.sleep(rng.uniform(0, 0.02))  # somewhere within the step
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        site = open_site("north", folder=place.folder)  # settles what was under way
        assert not isinstance(asked(site, run=f"after kill {attempt}"), Refusal)
        site.close()
        with Registry.open(place.folder) as registry:
            history, scales = registry.history(), registry.scales
            assert registry.current == place.digest
        disclosed = [history.groups[n].cells for n in sorted(history.live)]
        assert to_csv(assemble_summary(scales, disclosed)) == to_csv(place.read())
        assert place.approved
        summaries.add(place.digest)
        patients.come(10)  # other ids than those of the killed process
    assert len(summaries) > 4
    for column in range(3):
        disclosed = [one for one in history.groups.values() if one.disclosed >> column & 1]
        assert (
            fewer_than(3, [{p for p, has in one.members.items() if has >> column & 1} for one in disclosed])
            is None
        )
    assert read(place.folder).intact


@pytest.mark.parametrize("moment", ["adopted", "moved away"])
def test_a_kill_between_the_registry_and_the_folders_is_finished_by_whoever_comes_next(
    place, patients, monkeypatch, moment
):
    patients.leave(2)
    patients.come(8)
    found = renew(place, patients.table(), extra_spread=1.0)
    renames = iter([0, 1])
    rename = os.rename

    def killed(*paths):
        if moment == "adopted" or next(renames):
            raise KeyboardInterrupt
        rename(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            place.approve()
        if moment == "moved away":
            assert not place.path.exists()
    again = SummaryFolder(place.folder)
    site = open_site("north", folder=again.folder)
    site.close()
    assert to_csv(again.read()) == to_csv(found.summary)
    assert not again.pending
    assert len(list(place.folder.glob("summary-*"))) == 1
