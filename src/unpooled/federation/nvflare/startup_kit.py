"""The folders that NVFLARE starts from, written here instead of by its own provisioning.

They are as strict as the engine allows: mutual TLS, one role that may submit jobs and see them, no code sent
with a job, no shell commands, no log streaming, and a job may name only the classes of this package.
"""

import json
from pathlib import Path
from typing import Any

from unpooled.federation.engine import Address, EngineIdentity
from unpooled.federation.nvflare import heartbeat
from unpooled.protocol.site_id import SiteId
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.portable_paths import located

_HERE = "unpooled.federation.nvflare"
COORDINATOR, RESPONDER = f"{_HERE}.controller.Coordinator", f"{_HERE}.executor.Responder"
LAUNCHER = f"{_HERE}.restart_site_process.RestartingLauncher"
SERVER_LAUNCHER = f"{_HERE}.launchers.ServerLauncher"
PRESENCE, SITE_PRESENCE = f"{_HERE}.presence.Presence", f"{_HERE}.presence.SitePresence"
CONSOLE_ROLE = "lead"
TOPIC, ANSWER, READY = "unpooled.ask", "unpooled.answer", "unpooled.ready"  # messages of a run
CONSOLE_NAME = "coordinator@unpooled"
_MAX_SITES = 1000
_MAX_MESSAGE_BYTES = 2**31 - 2**21  # bytes of a message, as by the engine's default
SITE_FILE = "unpooled.json"  # in local/: a site's MembershipFile, or a server's runs; never sent anywhere
JOB_FILES = (
    "meta.json",
    "coordinator/config/config_fed_server.json",
    "site/config/config_fed_client.json",  # all that sites get: no task, and no name of another site
)

_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "filters": {"harmless": {"()": f"{_HERE}.engine_log.WithoutHarmless"}},
    "handlers": {
        "file": {
            "filters": ["harmless"],
            "class": "logging.handlers.RotatingFileHandler",
            "formatter": "plain",
            "filename": "log.txt",
            "maxBytes": 20_000_000,
            "backupCount": 5,
        }
    },
    "root": {"level": "INFO", "handlers": ["file"]},
}

_COMMUNICATION = {
    "allow_adhoc_conns": False,
    "internal": {  # between the engine and its job's process, on one machine: mutual TLS as between machines
        "scheme": "tcp",
        "resources": {"host": "localhost", "connection_security": "mtls"},
    },
    "grpc": {
        "max_workers": 2 * _MAX_SITES + 100,  # a thread per connection: a site has one, and one in a job
        "options": [
            ["grpc.max_send_message_length", _MAX_MESSAGE_BYTES],
            ["grpc.max_receive_message_length", _MAX_MESSAGE_BYTES],
            ["grpc.so_reuseport", 0],  # else two servers could share a port, and a site could reach either
        ],
    },
}

_PERMISSIONS = {
    "format_version": "1.0",
    "permissions": {
        CONSOLE_ROLE: {
            "submit_job": "any",
            "manage_job": "n:submitter",
            "download_job": "n:submitter",
            "view": "any",
            "clone_job": "none",
            "operate": "none",
            "shell_commands": "none",
            "byoc": "none",
        }
    },
}


def write_server(folder: Path, address: Address, identity: EngineIdentity) -> None:
    """Write the server's folder, which is in the folder of the federation."""
    _write(folder / "startup" / "fed_server.json", _server(address, address.host, address.port))
    _write(folder / "local" / SITE_FILE, {"runs": "../../runs", "federation": "../../federation.json"})
    _write_common(folder)
    _write_identity(folder, "server", identity)


def listen_at(server: Path, console: Path, address: Address, port: int) -> None:
    """Let the server listen at a port of the loopback interface, and the console find it there.

    The engine accepts only absolute paths. They are written here, whenever the server starts, because the
    folder may have been moved since.
    """
    _write(server / "startup" / "fed_server.json", _server(address, "localhost", port))
    _write(server / "local" / "resources.json", _server_resources(server))
    _write(console / "startup" / "fed_admin.json", _admin(address, "localhost", port))


def own_path(settings: Path, name: str) -> Path:
    """Return a path that a server's own settings name, relative to their file."""
    return Path(located(json.loads(settings.read_text())[name], settings.parent))


def _server_resources(server: Path) -> dict[str, Any]:
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [COORDINATOR],
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": _MAX_SITES,
                "heart_beat_timeout": heartbeat.SITE_TIMEOUT,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": storage,
                    "args": {"root_dir": str(server / "snapshots"), "uri_root": "/"},
                },
            },
        },
        "components": [
            _component(
                "job_scheduler",
                "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                max_jobs=4,
                min_schedule_interval=0.5,
                max_schedule_interval=2.0,
            ),
            _component(
                "job_manager",
                "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                uri_root=str(server / "jobs"),
                job_store_id="job_store",
            ),
            _component("job_store", storage),
            _component("process_launcher", SERVER_LAUNCHER),
            _component("presence", PRESENCE),
        ],
    }


def _server(address: Address, host: str, port: int) -> dict[str, Any]:
    """Return the server's own settings; ``host`` and ``port``: where it listens."""
    return {
        "format_version": 2,
        "servers": [
            {
                "name": address.federation,
                "service": {"target": f"{host}:{port}", "scheme": "grpc"},
                "admin_server": host,
                "admin_port": port,
                "ssl_private_key": "server.key",
                "ssl_cert": "server.crt",
                "ssl_root_cert": "rootCA.pem",
                "connection_security": "mtls",
            }
        ],
    }


def _admin(address: Address, host: str, port: int) -> dict[str, Any]:
    """Return the console's settings; ``host`` and ``port``: where it finds the server."""
    return {
        "format_version": 1,
        "admin": {
            "project_name": address.federation,
            "username": CONSOLE_NAME,
            "server_identity": address.host,
            "scheme": "grpc",
            "host": host,
            "port": port,
            "connection_security": "mtls",
            "uid_source": "user_input",
            "with_file_transfer": True,
            "upload_dir": "transfer",
            "download_dir": "transfer",
            "client_key": "client.key",
            "client_cert": "client.crt",
            "ca_cert": "rootCA.pem",
        },
    }


def write_site(folder: Path, address: Address, identity: EngineIdentity, site: SiteId) -> None:
    """Write a site's folder."""
    _write(
        folder / "startup" / "fed_client.json",
        {
            "format_version": 2,
            "servers": [
                {
                    "name": address.federation,
                    "service": {"target": f"{address.host}:{address.port}", "scheme": "grpc"},
                    "identity": address.host,
                }
            ],
            "client": {
                "ssl_private_key": "client.key",
                "ssl_cert": "client.crt",
                "ssl_root_cert": "rootCA.pem",
                "fqsn": site,
                "is_leaf": True,
                "connection_security": "mtls",
            },
        },
    )
    _write(
        folder / "local" / "resources.json",
        {
            "format_version": 2,
            "class_list_enforcement_mode": "enforce",
            "class_allow_list": [RESPONDER],
            "allow_log_streaming": False,
            "client": {"retry_timeout": 30, "compression": "Gzip"},
            "components": [
                _component(
                    "resource_manager",
                    "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
                    num_of_gpus=0,
                    mem_per_gpu_in_GiB=0,
                ),
                _component(
                    "resource_consumer",
                    "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
                ),
                _component("process_launcher", LAUNCHER),
                _component("presence", SITE_PRESENCE),
            ],
        },
    )
    _write_common(folder)
    _write_identity(folder, "client", identity)


def write_console(folder: Path, address: Address, identity: EngineIdentity) -> None:
    """Write the folder from which the coordinator submits jobs."""
    _write(folder / "startup" / "fed_admin.json", _admin(address, address.host, address.port))
    _write(folder / "local" / "resources.json", {"format_version": 1, "admin": {}})
    _write_identity(folder, "client", identity)


def _component(name: str, path: str, **args: object) -> dict[str, Any]:
    return {"id": name, "path": path, "args": args}


def _write_common(folder: Path) -> None:
    _write(folder / "local" / "authorization.json", _PERMISSIONS)
    _write(folder / "local" / "log_config.json", _LOGGING)
    _write(folder / "local" / "comm_config.json", _COMMUNICATION)
    (folder / "transfer").mkdir(exist_ok=True)


def _write_identity(folder: Path, party: str, identity: EngineIdentity) -> None:
    startup = folder / "startup"
    for name, text in (
        (f"{party}.crt", identity.certificate),
        ("rootCA.pem", identity.root),
        (f"{party}.key", identity.key),
    ):
        write_atomically(startup / name, text.encode())


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(value, indent=1) + "\n").encode())
