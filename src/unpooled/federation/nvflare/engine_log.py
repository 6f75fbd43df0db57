"""The engine's log without the warnings that good runs cause: they would hide the ones that matter."""

import logging
import re

_HARMLESS = re.compile(
    # at the end of a run: a site's process has ended, and the server's process of the run has not yet
    r"notified SJ of dead-job|Dropped terminal outcome for untracked job/client|"
    # at its beginning: a request that comes before the site's process is ready is sent again
    r"received unknown aux message topic unpooled\.|"
    # a reply that came after the engine's own wait for it
    r"no waiter for req |Receiving unknown req_id="
)


class WithoutHarmless(logging.Filter):
    """Drops the engine's warnings about what every run does, and what runs cope with by themselves."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno < logging.WARNING or _HARMLESS.search(record.getMessage()) is None
