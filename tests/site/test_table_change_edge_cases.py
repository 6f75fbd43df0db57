"""Renewals and erasures that go another way: nobody shown, nobody approved, two at once, damaged files."""

import getpass
import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.data import Table
from unpooled.data.summary_table import to_csv
from unpooled.errors import InputError, LedgerError
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.privacy.microaggregation.renew import ERASED
from unpooled.site import table_changes
from unpooled.site.erase_people import erase
from unpooled.site.log import Log
from unpooled.site.open_site import open_site
from unpooled.site.people_register import Registry
from unpooled.site.policy import parse
from unpooled.site.table_changes import renew
from unpooled.site.table_store import SummaryFolder, account

AUTO = parse('format = 1\n[protect]\nauto_approve = true\nno_sensitive_columns = true\nperson = "id"')
BY_ID = SummarySettings(min_group_size=3, person="id", no_sensitive_columns=True)


def table(people) -> Table:
    ages = [20.0 + 7 * (i % 9) + 0.1 * i for i in people]
    return Table.from_columns({"id": [f"P{i}" for i in people], "age": np.array(ages)})


@pytest.fixture
def place(tmp_path):
    place = SummaryFolder(tmp_path / "north")
    place.make(table(range(40)), BY_ID)
    place.approve("the officer")
    return place


def contents(place) -> tuple[str, set[str], str]:
    with Registry.open(place.folder) as people:
        return to_csv(place.read()), people.erased(), people.current


# ---------------------------------------------------------------- erasures


def test_a_person_who_was_never_disclosed_is_barred_and_the_summary_table_stays(place):
    before = contents(place)
    renew(place, table(range(67)))
    assert place.pending
    done = erase(place, ["P99"], block_unknown=True)
    assert (done.groups, done.people, done.never_disclosed) == (0, 0, ("P99",))
    after = contents(place)
    assert (after[0], after[2]) == (before[0], before[2])
    assert len(after[1]) == 1
    assert not place.pending  # a renewal may have shown who is barred: it must be planned anew
    found = renew(place, table([*range(67), 99]))
    assert found.states["P99"] == ERASED
    open_site("north", None, AUTO, place.folder).close()


def test_an_erasure_from_a_summary_table_that_answers_without_an_approval_approves_nothing(tmp_path):
    open_site("north", table(range(40)), AUTO, tmp_path).close()
    place = SummaryFolder(tmp_path)
    assert place.approved == ""
    assert erase(place, ["P3"]).groups == 1
    assert place.approved == ""
    site = open_site("north", None, AUTO, tmp_path)
    assert site.rows.digest == place.read().digest
    site.close()


def test_where_the_list_of_erasures_is_damaged_nobody_is_erased_and_it_is_reported(place):
    before = contents(place)
    (place.folder / "erasures.json").write_text("[{")
    with pytest.raises(LedgerError, match=r"erasures\.json: not a list of erasures, or damaged"):
        erase(place, ["P3"])
    assert contents(place) == before
    assert not place.renewal.exists()  # what was written beside belongs to no plan
    (place.folder / "erasures.json").unlink()
    assert erase(place, ["P3"]).groups == 1


# ---------------------------------------------------------------- renewals


@pytest.mark.parametrize("extra_spread", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none(place, extra_spread):
    with pytest.raises(InputError, match="the extra spread must be from 0 to 1"):
        renew(place, table(range(67)), extra_spread=extra_spread)


def test_somebody_who_is_erased_while_a_renewal_is_planned_is_not_in_it(place, monkeypatch):
    real = table_changes.plan_renewal

    def meanwhile(*given, **how):
        found = real(*given, **how)
        erase(SummaryFolder(place.folder), ["P3"])  # another process
        return found

    with monkeypatch.context() as patch:
        patch.setattr(table_changes, "plan_renewal", meanwhile)
        with pytest.raises(InputError, match="another process changed the registry meanwhile"):
            renew(place, table(range(67)))
    assert not place.pending
    assert not [path.name for path in place.folder.iterdir() if path.name.startswith(".summary.")]
    assert renew(place, table(range(67))).states["P3"] == ERASED


def test_a_renewal_that_no_registry_knows_of_is_removed_and_the_summary_table_stays(place):
    """The folder of another site's renewal is there, or a process was killed before it recorded it."""
    before = contents(place)
    shutil.copytree(place.path, place.renewal)
    about = json.loads((place.renewal / "about.json").read_text())
    (place.renewal / "about.json").write_text(json.dumps({**about, "digest": "0" * 64}))
    assert not place.pending
    assert not place.renewal.exists()
    assert contents(place) == before


# ---------------------------------------------------------------- registries


def test_a_summary_table_that_its_registry_does_not_know_is_not_approved(place, tmp_path):
    other = SummaryFolder(tmp_path / "south")
    other.make(table(range(3, 43)), BY_ID)
    shutil.rmtree(place.path)
    shutil.copytree(other.path, place.path)
    with pytest.raises(
        LedgerError, match=r"the registry does not know this summary table\. Nothing is answered"
    ):
        place.approve("the officer")
    assert place.approved == ""


def test_a_first_summary_table_that_nobody_approved_and_somebody_removed_may_be_made_again(tmp_path):
    place = SummaryFolder(tmp_path)
    place.make(table(range(40)), BY_ID)
    shutil.rmtree(place.path)
    place.make(table(range(40)), BY_ID)
    place.approve("the officer")
    shutil.rmtree(place.path)
    with pytest.raises(InputError, match="the registry names a summary table that was approved"):
        place.make(table(range(40)), BY_ID)


@pytest.mark.parametrize("end", [b'{"seq": 2, "half', b""], ids=["half a line", "whole"])
def test_the_registry_names_the_last_whole_line_of_the_log(place, end):
    log = Log(place.folder / "log.jsonl")
    erase(place, ["P99"], block_unknown=True)  # the log is empty, and there is nothing to name
    with Registry.open(place.folder) as people:
        assert people.last_log_head == ""
    log.append("opening", site="north")
    head = log.mark()
    log.close()
    with log.path.open("ab") as file:
        file.write(end)
    erase(place, ["P98"], block_unknown=True)
    with Registry.open(place.folder) as people:
        assert people.last_log_head == head


# ---------------------------------------------------------------- an officer at a terminal


def test_there_is_nothing_to_approve_where_there_is_no_summary_table(tmp_path):
    printed = CliRunner().invoke(app, ["site", "approve", "--table", "--yes", str(tmp_path)])
    assert printed.exit_code == 1
    assert "there is no summary table. Make one with unpooled site summarize" in printed.output.replace(
        "\n", " "
    )


def test_an_account_without_a_name_approves_under_none(place, monkeypatch):
    """As in a container that runs under a number."""

    def nameless():
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert account() == ""
    renew(place, table(range(67)))
    place.approve()
    assert json.loads((place.path / "approved.json").read_text())["by"] == ""
