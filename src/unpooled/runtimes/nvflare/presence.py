"""Records of connections, kept in files at the server and at each site for other processes to read."""

import json
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import NotAuthenticated
from nvflare.private.defs import ClientType

from unpooled.core.disk import held, write_atomically
from unpooled.runtimes.nvflare.startup_kit import FILE, SITE_FILE, presence_folder

_EVERY = 1.0  # seconds


class Presence(FLComponent):
    """Admits the sites of the federation and no others, even with a valid certificate.

    Keeps ``connected.json`` in the server's folder: times of each site's last contact and of refusals.
    """

    def __init__(self) -> None:
        super().__init__()
        self._refused: dict[str, float] = {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            home = presence_folder(Path(fl_ctx.get_workspace().get_root_dir()))
            home.mkdir(exist_ok=True)
            (home / FILE).unlink(missing_ok=True)  # left by an earlier server
            threading.Thread(target=self._watch, args=(fl_ctx.get_engine(), home), daemon=True).start()
        elif event_type == EventType.CLIENT_REGISTER_RECEIVED:
            self._admit(fl_ctx)

    def _admit(self, fl_ctx: FLContext) -> None:
        own = Path(fl_ctx.get_workspace().get_file_path_in_site_config(SITE_FILE))
        peer = fl_ctx.get_peer_context()
        if fl_ctx.get_prop(FLContextKey.CLIENT_TYPE) != ClientType.REGULAR or peer is None:
            return
        if not own.exists():  # a server that unpooled did not set up: its own rules apply
            return
        federation = Path(json.loads(own.read_text())["federation"])
        name = str(peer.get_identity_name())
        if name not in json.loads(federation.read_text())["sites"]:
            self._refused[name[:100]] = time.time()
            raise NotAuthenticated(f"{name[:100]!r} is not a site of this federation")

    def _watch(self, engine: Any, home: Path) -> None:
        with held(home):  # the lock shows readers that this process lives and the file is current
            while True:
                seen = {client.name: client.last_connect_time for client in engine.get_clients()}
                record = {"sites": seen, "refused": dict(self._refused)}
                write_atomically(home / FILE, json.dumps(record).encode())
                time.sleep(_EVERY)


class SitePresence(FLComponent):
    """Keeps ``connected.json`` in a site's folder: the time of its last contact with the server."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        let_in = event_type == EventType.AFTER_CLIENT_REGISTER and fl_ctx.get_prop(FLContextKey.CLIENT_TOKEN)
        if let_in or event_type == EventType.AFTER_CLIENT_HEARTBEAT:
            path = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT)) / FILE
            write_atomically(path, json.dumps({"time": time.time()}).encode())
