"""Submits a relay's downstream run, in a process of its own that reads its arguments as JSON from its input.

The console of an engine cannot run in a process that is a site of the same engine.
"""

import base64
import json
import logging
import sys
from pathlib import Path

from unpooled.errors import UnpooledError
from unpooled.federation.coordinator_run import ForwardTask
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.provisioning.follow_run import following, submit, wait_for_sites
from unpooled.protocol import codec
from unpooled.site.session import RunTerms
from unpooled.storage.file_locks import is_locked


def main() -> int:
    arguments = json.loads(sys.stdin.buffer.read())
    task: ForwardTask = codec.decode(base64.b64decode(arguments["task"]), expect=ForwardTask)
    terms: RunTerms = codec.decode(base64.b64decode(arguments["terms"]), expect=RunTerms)
    logging.disable()  # the engine's messages are of no use here: a failure is printed below
    try:
        federation = FederationFolder.read(Path(arguments["federation"]))
        work = federation.runs / task.run
        with following(work):
            wait_for_sites(federation, task, float(arguments["wait"]), lambda text: None)
            if not is_locked(work):
                written = ProgressFile(work)
                written.path.unlink(missing_ok=True)
                submit(federation, task, terms, written, lambda text: None)
    except UnpooledError as error:
        print(json.dumps({"kind": type(error).__name__, "text": str(error)}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
