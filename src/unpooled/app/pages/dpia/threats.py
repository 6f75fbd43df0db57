"""Threats to a site, by its mode: the measure, what remains, and the test that shows it."""

from typing import NamedTuple

ALL = ("summary", "dp", "raw")


class Threat(NamedTuple):
    """One line of the assessment, with a test of this package by file and function."""

    threat: str
    measure: str
    remains: str
    test: str
    modes: tuple[str, ...] = ALL


THREATS = (
    Threat(
        "Queries are chosen to single out a person: any query, in any order",
        "Every answer is computed from the summary table, not from rows",
        "What the summary table itself discloses: means over groups of people",
        "tests/laws/test_summary_table_law.py::test_two_tables_with_one_summary_table_give_the_same_bytes",
        ("summary",),
    ),
    Threat(
        "Answers of ordinary runs are subtracted from each other",
        "The same",
        "Means over groups of people",
        "tests/site/test_requests.py::test_no_answer_from_a_summary_table_is_a_row",
        ("summary",),
    ),
    Threat(
        "A summary table that left in a file or a run is changed on its way, or used for something else",
        "It leaves for one recipient and one approved study; the log records it before it leaves",
        "Afterwards limits on its use hold by agreement. An erasure cannot recall it; the recipient of a "
        "file gets a deletion notice",
        "tests/federation/test_summary_files.py::test_a_file_that_may_not_be_used_is_refused",
        ("summary",),
    ),
    Threat(
        "One extreme person decides the mean of a group",
        "Distances from the median are cut to a limit that depends on the third largest of the group",
        "At most two people of a group are cut; three extreme people are left as they are",
        "tests/privacy/test_summary_table.py::test_two_far_people_are_cut_and_three_are_not",
        ("summary",),
    ),
    Threat(
        "The total of a group discloses one large consumer (dominance)",
        "A cell is suppressed if one person has more than the declared share of its total",
        "Only columns that are declared as consumption; it is visible that a cell is missing",
        "tests/laws/test_dominance_law.py::test_no_cell_is_disclosed_that_one_person_dominates",
        ("summary",),
    ),
    Threat(
        "A person has many rows, and fills a group alone",
        "Groups count people, identified by the column of [protect] person",
        "Without that column every row counts as a person",
        "tests/privacy/test_summary_table.py::test_no_number_of_a_summary_table_is_about_fewer_than_g_people",
        ("summary",),
    ),
    Threat(
        "A rare category identifies a person",
        "Categories of fewer people than a group are merged",
        "Nothing known",
        "tests/privacy/test_summary_table.py::test_rare_categories",
        ("summary",),
    ),
    Threat(
        "Data change between two runs, and the difference is a person",
        "The summary table does not change with the data",
        "A second, unrelated table without a bound, if the officer allows one",
        "tests/attacks/test_crafted_queries.py::test_a_row_that_is_added_changes_nothing_until_a_new_summary_table",
        ("summary",),
    ),
    Threat(
        "All summary tables and answers of years are combined",
        "Rules for updates limit which people may be together in a group again",
        "Sums over at least as many people as a group has",
        "tests/privacy/test_history.py::"
        "test_no_combination_of_all_sums_ever_disclosed_is_about_fewer_than_g_people",
        ("summary",),
    ),
    Threat(
        "The coordinators of two federations compare what this site sent them",
        "All federations are answered from one summary table, and its updates follow one register of people",
        "What the summary table itself discloses",
        "tests/machines/test_two_federations.py::"
        "test_no_combination_of_what_two_federations_received_is_about_fewer_than_g_people",
        ("summary",),
    ),
    Threat(
        "The coordinators of two federations add up what this site sent them",
        "The answers to both are charged to one budget",
        "What the budget allows: epsilon and delta",
        "tests/machines/test_two_federations.py::test_two_federations_spend_one_budget",
        ("dp",),
    ),
    Threat(
        "The coordinators of two federations compare what this site sent them",
        "The equations that secure sums open are counted for both together",
        "Exact answers to both, outside of secure sums: rows can be reconstructed",
        "tests/site/test_equation_budget.py::"
        "test_no_sequence_of_queries_runs_restarts_and_federations_exceeds_the_budget",
        ("raw",),
    ),
    Threat(
        "The same people are in a second site folder, with a table or a budget of its own",
        "A register of the account's site folders refuses a second one over the same data",
        "Folders of other accounts and machines, and what --allow-second-folder allows; people at two "
        "institutions are in the tables of both",
        "tests/site/test_folder_register.py::"
        "test_a_second_folder_over_the_same_file_is_refused_until_it_is_allowed",
    ),
    Threat(
        "Membership inference: someone has a person's exact row, and infers whether it is included",
        "None by the summary table; differential privacy is the measure",
        "It is among the things that the summary table does not promise",
        "tests/privacy/test_dp_audit.py::test_the_audit_passes_the_honest_and_catches_half_the_noise",
        ("summary",),
    ),
    Threat(
        "Reconstruction: single rows are computed from exact sums",
        "Only the minimum cluster size and the contract with the partners",
        "Rows can be reconstructed; the attack on the log counts them",
        "tests/site/test_attack.py::test_a_scan_over_k_gives_most_rows_away",
        ("raw",),
    ),
    Threat(
        "Someone who has all other rows computes a row from answers",
        "Differential privacy, with one budget for all answers",
        "What the budget allows: epsilon and delta",
        "tests/privacy/test_dp_audit.py::test_the_audit_passes_the_honest_and_catches_half_the_noise",
        ("dp",),
    ),
    Threat(
        "Noise is averaged out by repeated queries",
        "An answer is charged to the budget before it leaves, and repeated in the same bytes",
        "Nothing known",
        "tests/attacks/test_budget_attacks.py::test_the_ledger_pays_for_every_byte_string_of_random_histories",
        ("dp",),
    ),
    Threat(
        "A lost or older ledger gives the budget back",
        "Log and ledger name each other's entries, and the site does not answer",
        "Both put back together, which the coordinator's log heads reveal",
        "tests/site/test_private_requests.py::test_a_lost_or_older_ledger_is_found_and_the_site_does_not_answer",
        ("dp",),
    ),
    Threat(
        "The coordinator reads the answers of this site alone",
        "Secure aggregation, where the policy and the run use it",
        "All other sites together can compute this site's sums",
        "tests/privacy/test_secure_runs.py::test_no_reply_is_ever_seen_by_itself",
    ),
    Threat(
        "The coordinator chooses how this site's file is read",
        "Only the site's own settings count",
        "Nothing known",
        "tests/machines/test_sessions.py::test_the_site_decides_how_its_file_is_read",
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
        "tests/machines/test_hostile.py::test_without_the_right_certificate_nobody_connects",
    ),
    Threat(
        "The log of what left is changed or cut",
        "A chain of hashes; a site whose log was changed does not answer",
        "Only the coordinator's log heads reveal that lines at the end are missing",
        "tests/attacks/test_budget_attacks.py::test_a_site_whose_log_was_changed_does_not_answer",
    ),
    Threat(
        "The site is restored from an old backup and answers again",
        "It refuses if the coordinator signed a line that its log lacks",
        "A coordinator that keeps no log heads",
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
    """Return the threats to a site in a mode."""
    return [threat for threat in THREATS if mode in threat.modes]
