"""The bill of materials of a wheel: CycloneDX 1.6, the same bytes for the same content.

It names the package, the libraries compiled into it, and its dependencies at run time.
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
    """Return the bill of a wheel with this METADATA; ``compiled``: with the extension module."""
    head = HeaderParser().parsestr(metadata)
    version = head["Version"]
    own = f"pkg:pypi/unpooled@{version}"
    parts = []
    if compiled:
        for name, licence, address in COMPILED_IN:
            parts.append(_component(name, address, _version(name), licence=licence, role="compiled in"))
    for requirement in head.get_all("Requires-Dist") or []:
        pattern = r"([\w.-]+)(?:\[[^]]*\])?([^;]*)(?:;(.*))?"
        name, versions, extra = re.fullmatch(pattern, requirement).groups()
        if extra is None:
            address = f"pkg:pypi/{name.lower()}"
            parts.append(_component(name, address, None, role="required", versions=versions))
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
    """The version of a library that is compiled in, as the build finds it."""
    if name == "nanobind":
        return importlib.metadata.version(name)
    header = importlib.metadata.distribution("nanobind").locate_file(
        "nanobind/ext/robin_map/include/tsl/robin_growth_policy.h"
    )
    found = re.findall(r"define TSL_RH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", Path(header).read_text())
    return ".".join(found)


def _component(
    name: str, address: str, version: str | None, *, role: str, licence: str = "", versions: str = ""
) -> dict[str, object]:
    full = f"{address}@{version}" if version else address
    properties = [{"name": "unpooled:role", "value": role}]
    properties += [{"name": "unpooled:range", "value": versions}] if versions else []
    return {
        "type": "library",
        "bom-ref": full,
        "name": name,
        **({"version": version} if version else {}),
        "purl": full,
        "scope": "required",
        **({"licenses": [{"license": {"id": licence}}]} if licence else {}),
        "properties": properties,
    }
