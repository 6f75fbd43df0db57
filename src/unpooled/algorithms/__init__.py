"""The methods, one file each. ``X.as_published()`` is the authors' behaviour, ``X()`` the recommended one.

Every module of this package is imported, and a method declares its own name, so a new file is a new method.
"""

from importlib import import_module
from pkgutil import iter_modules

from unpooled.algorithms.dual import Dual
from unpooled.algorithms.dwf import DWF, EWF
from unpooled.algorithms.fkm import FKM
from unpooled.algorithms.fuzzy import Fuzzy
from unpooled.algorithms.kfed import KFed
from unpooled.algorithms.lloyd import Lloyd
from unpooled.algorithms.method import Method
from unpooled.algorithms.minibatch import MiniBatch
from unpooled.algorithms.private.private_kmeans import Private
from unpooled.algorithms.private.private_state import PrivateState
from unpooled.algorithms.registry import METHODS, citation
from unpooled.algorithms.restarts import Restarts
from unpooled.algorithms.robust import Robust

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
for _name in sorted(METHODS, key=lambda name: (name != "lloyd", name)):
    METHODS[_name] = METHODS.pop(_name)  # in order: the default, then the others by name

__all__ = [
    "DWF",
    "EWF",
    "FKM",
    "METHODS",
    "Dual",
    "Fuzzy",
    "KFed",
    "Lloyd",
    "Method",
    "MiniBatch",
    "Private",
    "PrivateState",
    "Restarts",
    "Robust",
    "citation",
]
