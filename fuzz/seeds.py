"""Write the seeds of the fuzz targets: one message of every kind that is easy to make.

Run after a change of the wire format: ``python fuzz/seeds.py``.
"""

from pathlib import Path

import numpy as np

from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments

HOME = Path(__file__).parent / "corpus"
CENTERS = np.array([[[-1.0, 0.0], [1.0, 0.0]]])
QUESTIONS = {
    "sums": AskClusterSums(CENTERS),
    "moments": AskMoments(np.zeros(2)),
    "means": AskLocalMeans(k=2),
}


def main() -> None:
    for name, question in QUESTIONS.items():
        request = Request(RequestId("run", 7, 1, 0), (Part("total", question, None, 0),))
        (HOME / "fuzz_codec" / name).write_bytes(codec.encode(question))
        (HOME / "fuzz_codec" / f"{name}.request").write_bytes(codec.encode(request))
        (HOME / "fuzz_site" / name).write_bytes(codec.encode(request))


if __name__ == "__main__":
    main()
