"""What is asked of kept files: the sums of a site's copy, the labels of a model."""

from pathlib import Path

import numpy as np

from unpooled import Site
from unpooled.app.run_folder import RunFolder
from unpooled.core import codec
from unpooled.core.exchange import Envelope, Part, Turn
from unpooled.core.messages import Reply
from unpooled.data.readers import Reading, read_table
from unpooled.data.views import Number, Preparation
from unpooled.questions.clusters import AskClusterSums

CENTERS = np.array([[[40.0, 120.0], [60.0, 140.0]]])
VIEW = Preparation((Number("age", 0.0, 0.0, 1.0), Number("pressure", 0.0, 0.0, 1.0)), False)


def answered(site: Site, exchange: int = 0) -> Reply:
    """The reply to one question about ages and pressures."""
    turn = Turn("kept", 0, 0, exchange)
    return site.answer(Envelope(turn, (Part("total", AskClusterSums(CENTERS), VIEW, 0),))).replies[0]


def asked(site: Site, exchange: int = 0) -> str:
    """The same in hexadecimal digits."""
    return codec.encode(answered(site, exchange)).hex()


def predicted(home: Path) -> list[int]:
    """The labels of east.csv by the model of the run."""
    model = RunFolder(home / "run").load_model()
    table = read_table(home / "east.csv", model.reading(Reading()))
    return [int(label) for label in model.predict(table).clusters]
