"""Opens the run below a relay, in a process of its own: ``python -m ...opener``, told what on its input.

The console of an engine does not go into a process that is a site of the same engine.
"""

import base64
import json
import logging
import sys
from pathlib import Path

from unpooled.core import codec
from unpooled.core.disk import is_held
from unpooled.errors import UnpooledError
from unpooled.runtimes.coordinator_run import PassingTask, ProgressFile
from unpooled.runtimes.provisioning.federation_folder import FederationFolder
from unpooled.runtimes.provisioning.follow_run import following, gather_sites, submit
from unpooled.site.site_process import RunTerms


def main() -> int:
    said = json.loads(sys.stdin.buffer.read())
    task: PassingTask = codec.decode(base64.b64decode(said["task"]), expect=PassingTask)
    terms: RunTerms = codec.decode(base64.b64decode(said["terms"]), expect=RunTerms)
    logging.disable()  # what the engine says goes nowhere: what failed is said below
    try:
        federation = FederationFolder.read(Path(said["federation"]))
        work = federation.runs / task.run
        with following(work):
            gather_sites(federation, task, float(said["wait"]), lambda text: None)
            if not is_held(work):
                written = ProgressFile(work)
                written.path.unlink(missing_ok=True)
                submit(federation, task, terms, written, lambda text: None)
    except UnpooledError as error:
        print(json.dumps({"kind": type(error).__name__, "text": str(error)}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
