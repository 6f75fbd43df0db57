"""The faults of the matrix that ``tests.faults`` prints, and the tests that inject each one."""

from typing import NamedTuple

MACHINES = "tests/machines/"
SAME = "same bits"


class Fault(NamedTuple):
    """A fault, what the tests show, and the tests."""

    name: str
    shown: str
    tests: tuple[str, ...]


def _fault(name: str, shown: str, *tests: str) -> Fault:
    return Fault(name, shown, tuple(MACHINES + test for test in tests))


FAULTS = (
    _fault(
        "kill -9 of one process: site, server, job, console",
        SAME,
        "test_runs.py::test_a_run_continues_whichever_of_its_processes_is_killed",
        "test_runs.py::test_a_run_is_finished_by_itself_after_its_server_was_killed",
        "test_runs.py::test_a_job_that_is_killed_three_times_gives_the_same_bits",
    ),
    _fault(
        "kill -9 and SIGSTOP of any process at random",
        SAME,
        "test_kills.py::test_runs_whose_processes_are_killed_at_random_end_with_the_same_bits",
    ),
    _fault(
        "kill -9 of a site's whole process tree",
        "back in the same run, no process left",
        "test_processes.py::test_a_site_that_is_killed_comes_back_and_leaves_nothing_behind",
        "test_processes.py::test_a_site_that_is_killed_as_a_whole_is_back_in_the_same_job",
    ),
    _fault(
        "a supervisor is suspended or killed",
        "its processes end",
        "test_processes.py::test_a_supervisor_that_is_suspended_or_killed_ends",
    ),
    _fault(
        "a relay or a member of it is killed, at any level",
        SAME,
        "test_three_levels.py::test_the_page_with_a_relay_killed",
        "test_three_levels.py::test_a_process_killed_at_every_level",
    ),
    _fault(
        "a run over files: a kill before every write to the disk",
        SAME + ", each answer charged once",
        "test_file_processes.py",
    ),
    _fault(
        "a site is gone, quorum 0.5 or 1",
        "the site is named, the run goes on, waits or can be resumed",
        "test_sessions.py::test_a_site_that_vanishes_is_named_and_returns",
        "test_sessions.py::test_too_few_sites_stop_the_run_by_name_and_it_continues_later",
    ),
    _fault(
        "a full disk at a site",
        "named with the site",
        "test_processes.py::test_a_full_disk_is_named_with_its_site",
    ),
    _fault(
        "a full disk at the server, a file saved by half, a second server",
        SAME + ", the cause in one line",
        "test_processes.py::test_a_server_outlives_a_full_disk_a_half_saved_file_and_a_second_server",
    ),
    _fault(
        "answers get lost; a link is slow, cut, dead for a while",
        SAME,
        "test_network_faults.py",
        "test_sessions.py::test_answers_that_get_lost_change_nothing",
    ),
    _fault(
        "a server is started twice; another program has the port",
        "the process is named",
        "test_processes.py::test_serve_names_the_process_that_has_the_port",
        "test_processes.py::test_two_servers_do_not_share_a_port",
    ),
    _fault(
        "another program has the site's log open",
        "the program is named, or hands the log over",
        "test_processes.py::test_a_program_that_has_the_log_is_named_and_left_alone",
        "test_processes.py::test_a_process_of_ours_that_hangs_is_killed_for_the_log",
    ),
    _fault(
        "a site's folder is copied, moved or restored",
        "the officer is asked, the coordinator names both folders",
        "test_moved_folders.py",
    ),
    _fault(
        "a site's log is lost, or older than the coordinator knows",
        "refused by name until the site is admitted again",
        "test_operation.py::test_a_site_whose_log_was_lost_is_admitted_again_by_a_decision",
    ),
    _fault(
        "a federation is restored from a backup; the log rotates",
        "the same federation, the audit is whole",
        "test_operation.py::test_a_restored_federation_is_the_same_and_a_damaged_backup_is_refused",
        "test_operation.py::test_a_site_continues_over_rotations_and_the_audit_reads_all_files",
    ),
    _fault(
        "a clock that is wrong",
        "the clock is named",
        "test_diagnose.py",
        "test_logs_and_metrics.py::test_a_contact_in_the_future_does_not_count",
    ),
    _fault(
        "another version of unpooled at a site or a relay",
        "one minor version apart: same bits; more: both versions are named",
        "test_versions.py",
        "test_hostile.py::test_a_coordinator_of_another_version_is_declined_by_name",
        "test_relay_processes.py::test_another_version_above_or_in_the_middle_is_one_clear_reason",
    ),
)
