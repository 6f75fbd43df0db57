"""Which method should I use, and what to cite: one entry per method, for the command line and for people.

>>> print(citation("k-fed"))
Dennis, Li, Smith: Heterogeneity for the Win: One-Shot Federated Clustering. ICML 2021.
>>> from unpooled.algorithms import BestOf, Ewf
>>> citation(BestOf(Ewf(k=3))) == citation("ewf")
True
"""

from typing import Any, NamedTuple

from unpooled.errors import BadInput


class Entry(NamedTuple):
    """What to know before choosing a method."""

    name: str
    use: str  # when to use it
    sees: str  # what the coordinator sees of a site: only sums over all sites, or every site's means
    citation: str


_HOLZER = "Holzer, Jacob, Kavane: Dynamically Weighted Federated k-Means. arXiv:2310.14858, 2023."
_PRIVATE = (
    "Su, Cao, Li, Bertino, Jin: Differentially Private K-Means Clustering. CODASPY 2016. "
    "Dong, Roth, Su: Gaussian Differential Privacy. J. R. Stat. Soc. B 84(1), 2022."
)

GUIDE = (
    Entry(
        "lloyd",
        "Start here: the clustering that pooling would give, whatever the split",
        "totals",
        "Lloyd: Least Squares Quantization in PCM. IEEE Trans. Inf. Theory 28(2), 1982.",
    ),
    Entry(
        "k-fed",
        "Sites can answer only once, hold few of the clusters each, and may show their own means",
        "each site's means",
        "Dennis, Li, Smith: Heterogeneity for the Win: One-Shot Federated Clustering. ICML 2021.",
    ),
    Entry(
        "fkm",
        "Sites hold different clusters, and may show their own means every round",
        "each site's means",
        "Garst, Reinders: Federated K-Means Clustering. arXiv:2310.01195, 2023.",
    ),
    Entry("dwf", "Several local steps a round, momentum, or weights of your own", "totals", _HOLZER),
    Entry("ewf", "Every site counts alike, however many rows it holds", "totals", _HOLZER),
    Entry(
        "mini-batch",
        "Many small sites of which few answer a round; local epochs in batches",
        "totals",
        "Triebe, Rajagopal: Federated K-Means: Clustering Algorithm and Proof of Concept. 2019.",
    ),
    Entry(
        "fuzzy",
        "Rows between clusters shall belong to several: memberships instead of labels (FederatedFuzzyCMeans)",
        "totals",
        "Stallmann, Wilbik: Towards Federated Clustering: A Federated Fuzzy c-Means Algorithm (FFCM). "
        "FL-AAAI 2022.",
    ),
    Entry(
        "robust",
        "Some sites may be broken or hostile: a geometric median over sites, and suspects by name",
        "each site's means and sums",
        "Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning. "
        "IEEE Trans. Signal Process. 70, 2022.",
    ),
    Entry(
        "dual",
        "A few dozen rows a site, and you must know how far the clustering is from the best possible",
        "each site's means",
        "Anonymous authors: Federated K-Means Clustering via Dual Decomposition-based Distributed "
        "Optimization. Submitted to TMLR, 2023.",
    ),
)


def citation(method: Any) -> str:
    """The paper to cite for a method, by its name or as the algorithm that was run (``model.algorithm_``)."""
    from unpooled.algorithms import METHODS, Private

    while hasattr(method, "inner"):
        method = method.inner
    if isinstance(method, Private):
        return _PRIVATE
    for entry in GUIDE:
        if method == entry.name or type(method) is METHODS[entry.name]:
            return entry.citation
    raise BadInput(f"no citation is known for {method!r}; methods are {', '.join(METHODS)}")
