"""Write the seeds of the fuzz targets: one message of every kind that is easy to make.

Run after a change of the wire format: ``python fuzz/seeds.py``.
"""

from pathlib import Path

import numpy as np

from unpooled.core import codec
from unpooled.core.exchange import Envelope, Part, Turn
from unpooled.questions.clusters import AskClusterSums, AskLocalMeans, AskMoments

HOME = Path(__file__).parent / "corpus"
CENTERS = np.array([[[-1.0, 0.0], [1.0, 0.0]]])
QUESTIONS = {
    "sums": AskClusterSums(CENTERS),
    "moments": AskMoments(np.zeros(2)),
    "means": AskLocalMeans(k=2),
}


def main() -> None:
    for name, question in QUESTIONS.items():
        envelope = Envelope(Turn("run", 7, 1, 0), (Part("total", question, None, 0),))
        (HOME / "fuzz_codec" / name).write_bytes(codec.encode(question))
        (HOME / "fuzz_codec" / f"{name}.envelope").write_bytes(codec.encode(envelope))
        (HOME / "fuzz_site" / name).write_bytes(codec.encode(envelope))


if __name__ == "__main__":
    main()
