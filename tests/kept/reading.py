"""What is asked of kept files: the sums of a site's copy, the labels of a model."""

from pathlib import Path

import numpy as np

from unpooled import Site
from unpooled.app.run_folder import RunFolder
from unpooled.core import codec
from unpooled.core.exchange import Envelope, Part, Turn
from unpooled.data.readers import Reading, read_table
from unpooled.questions.clusters import AskClusterSums

CENTERS = np.array([[[40.0, 120.0], [60.0, 140.0]]])


def asked(site: Site, exchange: int = 0) -> str:
    """The reply to one question, in hexadecimal digits."""
    turn = Turn("kept", 0, exchange, 0)
    answer = site.answer(Envelope(turn, (Part("total", AskClusterSums(CENTERS), None, 0),)))
    return codec.encode(answer.replies[0]).hex()


def predicted(home: Path) -> list[int]:
    """The labels of east.csv by the model of the run."""
    model = RunFolder(home / "run").load_model()
    table = read_table(home / "east.csv", model.reading(Reading()))
    return [int(label) for label in model.predict(table).clusters]
