"""All experiments by name, in the order of the list. To add a paper, write a module and add a line here."""

from importlib import import_module

from reproduction.experiment import Experiment
from unpooled.errors import InputError

_MODULES = {
    "garst-fig1": "garst",
    "garst-fig3": "garst",
    "garst-fig4": "garst",
    "garst-fig5": "garst_femnist",
    "holzer-synthetic": "holzer",
    "holzer-mnist": "holzer",
    "holzer-femnist": "holzer",
    "holzer-participation": "participation",
    "triebe-fraction": "triebe",
    "triebe-epochs": "triebe",
    "triebe-rate": "triebe",
    "stallmann-cases": "stallmann",
    "stallmann-g2": "stallmann_g2",
    "dual-tables": "dual",
    "dual-held-out": "dual",
}
"""Name -> module of this package, which has it in its tuple EXPERIMENTS."""

NAMES = tuple(_MODULES)


def find(name: str) -> Experiment:
    """The experiment of that name."""
    if name == "compare":  # not a paper, but workers of ``unpooled compare`` ask for it
        from reproduction.compare_methods import EXPERIMENT

        return EXPERIMENT
    if name not in _MODULES:
        raise InputError(f"no experiment {name!r}: they are {', '.join(NAMES)}")
    module = import_module(f"reproduction.{_MODULES[name]}")
    for experiment in module.EXPERIMENTS:
        if experiment.name == name:
            assert isinstance(experiment, Experiment)
            return experiment
    raise InputError(f"{module.__name__} has no experiment {name!r}")


def chosen(wanted: str) -> tuple[Experiment, ...]:
    """One experiment, several with commas between them, all of a paper by its first word, or ``all``."""
    if wanted == "all":
        return tuple(find(name) for name in NAMES)
    found: list[Experiment] = []
    for part in wanted.split(","):
        of_paper = [name for name in NAMES if name.startswith(f"{part}-")]
        found += [find(name) for name in of_paper] if of_paper else [find(part)]
    return tuple(found)
