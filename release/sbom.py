"""The bill of materials of a wheel: CycloneDX 1.6, the same bytes for the same content.

It names the package, what is compiled into it, and what it requires when it runs.
"""

import importlib.metadata
import json
import re
import uuid
from email.parser import HeaderParser
from pathlib import Path

NAMESPACE = uuid.UUID("6a4f6ed8-52f7-5d0d-9d61-0c1d4f0b9f5e")  # of this project's bills
COMPILED_IN = (
    ("nanobind", "BSD-3-Clause", "pkg:pypi/nanobind"),
    ("robin-map", "MIT", "pkg:github/Tessil/robin-map"),  # comes with nanobind
)


def bill(metadata: str, compiled: bool) -> bytes:
    """The bill of a wheel with this METADATA; ``compiled``: with the extension module."""
    head = HeaderParser().parsestr(metadata)
    version = head["Version"]
    own = f"pkg:pypi/unpooled@{version}"
    parts = []
    if compiled:
        for name, licence, address in COMPILED_IN:
            parts.append(_component(name, address, _version(name), licence=licence, role="compiled in"))
    for requirement in head.get_all("Requires-Dist") or []:
        name, wanted, extra = re.fullmatch(r"([\w.-]+)(?:\[[^]]*\])?([^;]*)(?:;(.*))?", requirement).groups()
        if extra is None:
            parts.append(_component(name, f"pkg:pypi/{name.lower()}", None, role="required", wanted=wanted))
    content = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "unpooled",
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": parts,
        "dependencies": [
            {"ref": own, "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"], "dependsOn": []} for part in parts),
        ],
    }
    number = uuid.uuid5(NAMESPACE, json.dumps(content, sort_keys=True))
    return (json.dumps({**content, "serialNumber": f"urn:uuid:{number}"}, indent=1) + "\n").encode()


def _version(name: str) -> str:
    """The version of what is compiled in, from where the build takes it."""
    if name == "nanobind":
        return importlib.metadata.version(name)
    header = importlib.metadata.distribution("nanobind").locate_file(
        "nanobind/ext/robin_map/include/tsl/robin_growth_policy.h"
    )
    found = re.findall(r"define TSL_RH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", Path(header).read_text())
    return ".".join(found)


def _component(
    name: str, address: str, version: str | None, *, role: str, licence: str = "", wanted: str = ""
) -> dict[str, object]:
    full = f"{address}@{version}" if version else address
    said = [{"name": "unpooled:role", "value": role}]
    said += [{"name": "unpooled:range", "value": wanted}] if wanted else []
    return {
        "type": "library",
        "bom-ref": full,
        "name": name,
        **({"version": version} if version else {}),
        "purl": full,
        "scope": "required",
        **({"licenses": [{"license": {"id": licence}}]} if licence else {}),
        "properties": said,
    }
