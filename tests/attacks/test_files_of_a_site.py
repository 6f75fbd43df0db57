"""What a reader of a site's files finds: as text, as the eight bytes of a number, within packed payloads."""

import json
import struct

import numpy as np
from typer.testing import CliRunner

from attacks.test_blackbox_attacks import replies
from unpooled.app.cli import app
from unpooled.data import Number, Preparation
from unpooled.data.schema import AskSchema
from unpooled.protocol import codec
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskLocalMeans, AskMoments
from unpooled.site.log import unpacked
from unpooled.site.open_site import open_site


def packed_in(node) -> list[bytes]:
    """Every payload within a line of a log, unpacked."""
    if isinstance(node, dict):
        own = [unpacked(node["payload"])] if isinstance(node.get("payload"), str) else []
        return [*own, *(data for value in node.values() for data in packed_in(value))]
    return [data for value in node for data in packed_in(value)] if isinstance(node, list) else []


def test_no_file_and_no_payload_holds_a_value_or_an_id_in_any_form(tmp_path):
    values = np.random.default_rng(0).normal(50, 9, size=80).tolist()
    source = tmp_path / "secret-path.csv"
    lines = [f"ZZ{i},{v!r},Name{i},{'ab'[i % 2]}" for i, v in enumerate(values)]
    source.write_text("who,x,surname,kind\n" + "\n".join(lines) + "\n")
    folder = tmp_path / "n"
    words = [
        "site",
        "summarize",
        "--no-sensitive-columns",
        folder,
        "--data",
        source,
        "--person",
        "who",
        "--exclude",
        "surname",
    ]
    for command in (words, ["site", "approve", "--table", "--yes", folder, "--by", "officer"]):
        assert CliRunner().invoke(app, list(map(str, command))).exit_code == 0
    heading = (folder / "summary" / "table.csv").read_text().splitlines()[0]
    assert "x" in heading.split(",")  # a column of numbers
    site = open_site("a", None, None, folder)
    transform = Preparation((Number("x", 0.0, 0.0, 1.0),), drop=False)
    answers = replies(
        site, (AskSchema(), None), (AskMoments(), transform), (AskLocalMeans(5, steps=0), transform)
    )
    site.close()
    assert not any(isinstance(codec.decode(data), Refusal) for data in answers)
    assert codec.decode(answers[1]).sums[0] > 80 * 30  # it is about the numbers
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    payloads = [data for entry in log for data in packed_in(entry)]
    assert len(payloads) >= 6  # three questions, three answers
    secrets = [b"secret-path", b"surname", b"Name3", b"ZZ3"]
    secrets += [repr(v).encode() for v in values] + [struct.pack("<d", v) for v in values]
    for data in (*files, *payloads, *answers):
        for secret in secrets:
            assert secret not in data
