"""All experiments by name, in the order of the list. To add a paper, write a module and add a line here."""

from dataclasses import dataclass
from importlib import import_module

from reproduction.experiment import Experiment
from unpooled.errors import InputError

_MODULES = {
    "garst-fig1": "garst",
    "garst-fig3": "garst",
    "garst-fig4": "garst",
    "garst-fig5": "garst_femnist",
    "garst-fig6": "garst",
    "garst-real": "real_data",
    "holzer-fig1": "holzer_toy",
    "holzer-rounding": "holzer_rounding",
    "holzer-synthetic": "holzer",
    "holzer-mnist": "holzer",
    "holzer-femnist": "holzer",
    "holzer-participation": "participation",
    "triebe-fraction": "triebe",
    "triebe-epochs": "triebe",
    "triebe-rate": "triebe",
    "triebe-progress": "triebe_progress",
    "stallmann-cases": "stallmann",
    "stallmann-g2": "stallmann_g2",
    "stallmann-claims": "stallmann_more",
    "stallmann-real": "real_data",
    "dual-tables": "yfantis",
    "dual-held-out": "yfantis",
}
"""Name -> module of this package, which has the experiment in its tuple EXPERIMENTS."""

NAMES = tuple(_MODULES)

RECORDED: dict[str, int] = {
    "garst-fig5": 10,
    "garst-fig6": 40,
    "holzer-mnist": 10,
    "holzer-femnist": 8,
    "triebe-fraction": 30,
    "triebe-epochs": 30,
    "triebe-rate": 30,
    "stallmann-g2": 4,
}
"""Runs of the recorded results where they are fewer than in the paper, because a run is slow."""
RECORDED_QUICK = ("holzer-participation",)
"""Experiments whose quick form is recorded: images by participation take many hours."""


@dataclass(frozen=True)
class Paper:
    """A paper: the title of its page docs/papers/NAME.md, and its experiments."""

    title: str
    prefix: str  # of the names of its experiments

    @property
    def experiments(self) -> tuple[str, ...]:
        """The names of its experiments."""
        return tuple(name for name in NAMES if name.startswith(f"{self.prefix}-"))


PAPERS = {
    "garst": Paper("Garst & Reinders", "garst"),
    "holzer": Paper("Holzer, Jacob & Kavane", "holzer"),
    "triebe": Paper("Triebe & Rajagopal", "triebe"),
    "yfantis": Paper("Yfantis, Wagner & Ruskowski", "dual"),
    "stallmann": Paper("Stallmann & Wilbik", "stallmann"),
}
COMPARE = "compare"
"""The comparison of all methods: an experiment that is not from a paper."""


def find(name: str) -> Experiment:
    """Return the experiment of that name."""
    if name != COMPARE and name not in _MODULES:
        raise InputError(f"There is no experiment {name!r}. The experiments are {', '.join(NAMES)}.")
    module = import_module(f"reproduction.{_MODULES.get(name, 'compare_methods')}")
    for experiment in module.EXPERIMENTS:
        if experiment.name == name:
            assert isinstance(experiment, Experiment)
            return experiment
    raise InputError(f"{module.__name__} has no experiment {name!r}. Add it to its EXPERIMENTS.")


def select(names: str) -> tuple[Experiment, ...]:
    """Return experiments by name, with commas between names.

    The first word of a paper's experiments selects all of them, and "all" those of every paper.
    """
    if names == "all":
        return tuple(find(name) for name in NAMES)
    found: list[Experiment] = []
    for part in names.split(","):
        of_paper = [name for name in NAMES if name.startswith(f"{part}-")]
        found += [find(name) for name in of_paper] if of_paper else [find(part)]
    return tuple(found)
