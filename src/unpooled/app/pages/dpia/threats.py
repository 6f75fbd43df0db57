"""Threats to a site, by the protection that it has: the measure, what remains, the test that shows it."""

from typing import NamedTuple

ALL = ("summary", "dp", "raw")


class Threat(NamedTuple):
    """One line of the assessment. The test is named by file and function of this package's own tests."""

    threat: str
    measure: str
    remains: str
    test: str
    modes: tuple[str, ...] = ALL


THREATS = (
    Threat(
        "Questions are chosen to single out a person: any question, in any order",
        "Every answer is computed from the copy, never from rows",
        "What the copy itself shows: means over groups of persons",
        "tests/laws/test_summary_table_law.py::test_two_tables_with_one_summary_table_give_the_same_bytes",
        ("summary",),
    ),
    Threat(
        "Answers of ordinary runs are subtracted from each other",
        "The same",
        "Means over groups of persons",
        "tests/site/test_requests.py::test_no_answer_from_a_summary_table_is_a_row",
        ("summary",),
    ),
    Threat(
        "One extreme person decides the mean of a group",
        "A distance from the median is cut to what the third largest of the group allows",
        "Two persons of a group may be cut; a third one is company",
        "tests/privacy/test_summary_table.py::test_two_far_people_are_cut_and_three_are_not",
        ("summary",),
    ),
    Threat(
        "One large consumer can be read off a total",
        "A cell is not shown where one person has more than the declared share of its total",
        "Only columns that are declared as consumption; that a cell is missing is seen",
        "tests/laws/test_dominance_law.py::test_no_cell_is_disclosed_that_one_person_dominates",
        ("summary",),
    ),
    Threat(
        "A person has many rows, and fills a group alone",
        "Groups count persons, told by the column of [protect] person",
        "Without that column every row counts as a person",
        "tests/privacy/test_summary_table.py::test_no_number_of_a_summary_table_is_about_fewer_than_g_people",
        ("summary",),
    ),
    Threat(
        "A rare level of a category names a person",
        "Levels of fewer persons than a group are merged",
        "Nothing known",
        "tests/privacy/test_summary_table.py::test_rare_categories",
        ("summary",),
    ),
    Threat(
        "Data change between two runs, and the difference is a person",
        "The copy does not change with the data",
        "A renewal (next line), or a further copy without a bound, if the officer orders one",
        "tests/attacks/test_crafted_queries.py::test_a_row_that_is_added_changes_nothing_until_a_new_summary_table",
        ("summary",),
    ),
    Threat(
        "All copies and answers of years are combined",
        "Copies are renewed by rules on who may be together in a group again",
        "Sums over at least as many persons as a group has",
        "tests/privacy/test_history.py::"
        "test_no_combination_of_all_sums_ever_disclosed_is_about_fewer_than_g_people",
        ("summary",),
    ),
    Threat(
        "Somebody knows a candidate's exact row, and asks whether he is in",
        "None by the copy; noise is the measure",
        "See what the copy does not promise, below",
        "tests/privacy/test_dp_audit.py::test_the_audit_passes_the_honest_and_catches_half_the_noise",
        ("summary",),
    ),
    Threat(
        "Single rows are worked out from exact sums",
        "None but the minimum size and the contract with the partners",
        "Rows can be worked out; the attack below counts them",
        "tests/site/test_attack.py::test_a_scan_over_k_gives_most_rows_away",
        ("raw",),
    ),
    Threat(
        "Whoever knows all others learns a row from answers",
        "Noise, paid for from one budget",
        "What the budget allows: epsilon and delta",
        "tests/privacy/test_dp_audit.py::test_the_audit_passes_the_honest_and_catches_half_the_noise",
        ("dp",),
    ),
    Threat(
        "Noise is averaged out by asking often",
        "An answer is paid for before it leaves, and repeated in the same bytes",
        "Nothing known",
        "tests/attacks/test_budget_attacks.py::test_the_ledger_pays_for_every_byte_string_of_random_histories",
        ("dp",),
    ),
    Threat(
        "A lost or older ledger gives the budget back",
        "Log and ledger name each other's entries, and the site does not answer",
        "Both put back together, which the coordinator's heads show",
        "tests/site/test_private_requests.py::test_a_lost_or_older_ledger_is_found_and_the_site_does_not_answer",
        ("dp",),
    ),
    Threat(
        "The coordinator reads the answers of this site alone",
        "Secure sums, where the policy and the run use them",
        "All other sites together know this site's sums",
        "tests/privacy/test_secure_runs.py::test_no_reply_is_ever_seen_by_itself",
    ),
    Threat(
        "The coordinator says how this site's file is read",
        "Only the site's own settings count",
        "Nothing known",
        "tests/machines/test_sessions.py::test_how_a_file_is_read_is_the_sites",
    ),
    Threat(
        "Code is sent to the site",
        "Refused",
        "Nothing known",
        "tests/machines/test_hostile.py::test_a_job_with_code_of_its_own_is_refused",
    ),
    Threat(
        "A stranger connects",
        "Mutual TLS",
        "A stolen key, until its certificate is replaced",
        "tests/machines/test_hostile.py::test_whoever_lacks_the_right_certificate_gets_nothing",
    ),
    Threat(
        "The record of what left is changed or cut",
        "A chain of hashes; a site whose log is not whole does not answer",
        "A cut end shows only beside the coordinator's heads",
        "tests/attacks/test_budget_attacks.py::test_a_site_whose_log_was_changed_does_not_answer",
    ),
    Threat(
        "The site is restored from an old backup and answers anew",
        "It refuses what the coordinator signed and its log lacks",
        "A coordinator that keeps no heads",
        "tests/attacks/test_budget_attacks.py::"
        "test_a_site_restored_from_an_old_backup_answers_nothing_until_its_newest_log_is_back",
    ),
    Threat(
        "The policy is loosened by mistake",
        "Unknown keys are errors; a policy that is weaker than its preset is refused",
        "What the officer writes on purpose",
        "tests/site/test_policy.py::test_a_policy_that_is_weaker_than_its_preset_is_refused",
    ),
)


def threats(mode: str) -> list[Threat]:
    """The threats to a site with a protection."""
    return [threat for threat in THREATS if mode in threat.modes]
