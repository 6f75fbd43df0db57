"""The registry of all methods by name: those of the package, and those of modules that were imported."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from unpooled.errors import InputError
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Algorithm

if TYPE_CHECKING:
    from unpooled.algorithms.method import Method

METHODS: dict[str, type["Method"]] = {}
"""Every method by its name, the default first."""


def register(name: str, cls: type["Method"]) -> None:
    """Enter a method under its name; InputError if the name is taken, or the class cannot travel."""
    if codec.class_named(codec.name_of(cls)) is not cls:
        raise InputError(
            f'{cls.__qualname__}: a method outside of unpooled needs a prefix, e.g. prefix="hospital"'
        )
    other = METHODS.get(name)
    if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InputError(
            f"two methods are called {name!r}: {other.__module__}.{other.__qualname__} and "
            f"{cls.__module__}.{cls.__qualname__}"
        )
    METHODS[name] = cls


def import_methods(modules: Sequence[str]) -> None:
    """Import installed modules, which register their methods; InputError if one cannot be imported."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise InputError(f"module {module} cannot be imported: {error}") from error


def list_methods() -> tuple[type["Method"], ...]:
    """Return every method that has a name, the default first."""
    return tuple(METHODS.values())


def citation(method: str | Algorithm[Any]) -> str:
    """Return the paper to cite for a method.

    Parameters
    ----------
    method : str or Algorithm
        The name of the method, or the algorithm that ran (``model.algorithm_``).

    Returns
    -------
    str
        Authors, title and year.

    Raises
    ------
    InputError
        If no method has this name.

    Examples
    --------
    >>> from unpooled.algorithms import citation
    >>> citation("dwf")
    'Holzer, Jacob, Kavane: Dynamically Weighted Federated k-Means. arXiv:2310.14858, 2023.'
    """
    cited = METHODS.get(method) if isinstance(method, str) else method.innermost
    if cited is None or not cited.citation:
        raise InputError(f"no citation is known for {method!r}; methods are {', '.join(METHODS)}")
    return cited.citation
