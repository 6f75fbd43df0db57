"""Presets: published rules on small numbers that officers know, each with its source.

A site takes one by ``unpooled site init --preset NAME``, a run is released under one by
``unpooled release RUN --preset NAME``.
"""

from dataclasses import dataclass
from typing import Literal

from unpooled.errors import InputError


@dataclass(frozen=True)
class Preset:
    """One published rule: the fewest people behind a number, and its other requirements."""

    name: str
    rule: str  # title of the published rule
    by: str  # who published it
    where: str  # where it can be read
    asks: str  # the rule in one sentence
    min_people: int  # the fewest people behind a disclosed number; 0: noise protects any number of people
    mode: Literal["summary", "dp"] = "summary"
    rounding: int = 5  # counts of a release are multiples of it
    max_share: float = 0.0  # largest share of a consumption total that one person may have; 0: any
    epsilon: float = 0.0  # of differential privacy, over all runs
    max_rows: int = 0  # of a released table; 0: any
    max_bytes: int = 0  # of a released file; 0: any


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "opensafely",
            "Applying statistical disclosure control, and the checklist of Requesting release of research "
            "outputs",
            "OpenSAFELY",
            "https://docs.opensafely.org/outputs/sdc/",
            "Counts of 7 or fewer people are suppressed, and the others are rounded to the nearest 5.",
            min_people=8,
            max_rows=5000,
            max_bytes=16 * 10**6,
        ),
        Preset(
            "cms",
            "CMS Cell Size Suppression Policy",
            "Centers for Medicare & Medicaid Services, as explained by ResDAC",
            "https://resdac.org/articles/cms-cell-size-suppression-policy",
            "No cell of 1 to 10 people is disclosed, and no number from which one could be computed.",
            min_people=11,
        ),
        Preset(
            "datashield",
            "Disclosure settings of DataSHIELD: datashield.privacyLevel",
            "DataSHIELD, package dsBase",
            "https://rdrr.io/github/datashield/dsBaseClient/man/ds.listDisclosureSettings.html",
            "No cell of fewer than 5 people is disclosed. (A server may set nfilter.tab; 3 is usual there, "
            "and 5 is named as the most frequent threshold.)",
            min_people=5,
        ),
        Preset(
            "utility-15-15",
            "The 15/15 rule: Decision 14-05-016, adopting rules to provide access to energy usage and "
            "usage-related data while protecting privacy of personal data",
            "California Public Utilities Commission; likewise Colorado, 4 CCR 723-3",
            "https://docs.cpuc.ca.gov/PublishedDocs/Published/G000/M090/K845/90845985.PDF",
            "An aggregate has at least 15 customers, and none of them has more than 15% of its total.",
            min_people=15,
            max_share=0.15,
        ),
        Preset(
            "strict",
            "Calibrating Noise to Sensitivity in Private Data Analysis",
            "Dwork, McSherry, Nissim, Smith, Theory of Cryptography Conference 2006",
            "https://doi.org/10.1007/11681878_14",
            "Every answer has noise that is charged to one privacy budget (differential privacy).",
            min_people=0,
            mode="dp",
            epsilon=1.0,
        ),
    )
}


def preset(name: str) -> Preset:
    """Return the preset of a name; InputError lists the presets.

    >>> preset("opensafely").min_people
    8
    """
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}. The presets are {', '.join(PRESETS)}.")
    return PRESETS[name]
