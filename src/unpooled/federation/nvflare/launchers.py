"""The coordinator's process of a job, which ends with the server; and the folders of jobs that have ended."""

import contextlib
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobHandleSpec
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher

from unpooled.federation import die_with_parent

_ENDED = "ended"  # the file that marks the folder of a job that has ended
_KEPT = 5  # folders of ended jobs that stay, to find the reason of a failure

# A process ends with the thread that started it: this thread lives as long as the engine.
starter = ThreadPoolExecutor(1, thread_name_prefix="starter")


def dying_with_parent(command: str) -> str:
    """Change the engine's command ``python -m MODULE ARGUMENTS`` so that the job ends with this process."""
    _, flag, module, *arguments = shlex.split(command)
    if flag != "-m":
        raise RuntimeError(f"the engine starts a job in an unknown way: {flag}")
    return shlex.join(die_with_parent.command(module, *arguments))


class ServerLauncher(ServerProcessJobLauncher):
    """Starts the coordinator's process of a job, which ends with the server."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> str:
        return dying_with_parent(super().get_command(job_meta, fl_ctx))

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> JobHandleSpec:
        return starter.submit(super().launch_job, job_meta, fl_ctx).result()


def mark_job_ended(folder: Path) -> None:
    """Mark the folder of a job that has ended, and remove all but the latest marked folders."""
    with contextlib.suppress(OSError):  # on a full disk it stays for the next time
        (folder / _ENDED).touch()
    ended = sorted(folder.parent.glob(f"*/{_ENDED}"), key=lambda path: path.stat().st_mtime)
    for mark in ended[:-_KEPT]:
        shutil.rmtree(mark.parent, ignore_errors=True)


def job_folders(workspace: Path) -> list[Path]:
    """Return the folders of jobs that were not marked as ended."""
    return [meta.parent for meta in workspace.glob("*/meta.json") if not (meta.parent / _ENDED).exists()]
