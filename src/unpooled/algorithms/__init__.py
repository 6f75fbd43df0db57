"""The methods, one file each. ``X.as_published()`` is the authors' behaviour, ``X()`` what to run."""

from unpooled.algorithms.base import Method
from unpooled.algorithms.best_of import BestOf
from unpooled.algorithms.dual import Dual
from unpooled.algorithms.dwf import Dwf, Ewf
from unpooled.algorithms.fkm import Fkm
from unpooled.algorithms.fuzzy import Fuzzy
from unpooled.algorithms.kfed import KFed
from unpooled.algorithms.lloyd import Lloyd
from unpooled.algorithms.minibatch import MiniBatch
from unpooled.algorithms.private import Private
from unpooled.algorithms.private_state import PrivateState
from unpooled.algorithms.robust import Robust

METHODS: dict[str, type[Method]] = {
    "lloyd": Lloyd,
    "dwf": Dwf,
    "ewf": Ewf,
    "fkm": Fkm,
    "k-fed": KFed,
    "mini-batch": MiniBatch,
    "fuzzy": Fuzzy,
    "robust": Robust,
    "dual": Dual,
}

__all__ = [
    "METHODS",
    "BestOf",
    "Dual",
    "Dwf",
    "Ewf",
    "Fkm",
    "Fuzzy",
    "KFed",
    "Lloyd",
    "Method",
    "MiniBatch",
    "Private",
    "PrivateState",
    "Robust",
]
