"""Studies for tests: proposed as ``unpooled run`` does, and approved as an officer does."""

from dataclasses import replace
from pathlib import Path

from unpooled.app.job import Between, Job
from unpooled.app.study import proposed
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.site.site_process import RunTerms, SiteSettings
from unpooled.site.study import Study, signable
from unpooled.site.study_folder import APPROVED, StudyFolder


def study_of(run: str = "r", identity: Identity | None = None, *, ks=(2, 3), method="lloyd", **how) -> Study:
    """The study of a job; with an identity it names its key."""
    told = Job(("x",), ks, method=method, between=Between("", run, ("a",), purpose="to find groups"))
    study, _ = proposed(told, told.between)
    return replace(study, authority="" if identity is None else identity.public.hex(), **how)


def terms_of(study: Study, identity: Identity | None = None) -> RunTerms:
    """The terms of a run, its study signed by an identity."""
    return RunTerms.now(study, "" if identity is None else identity.sign(signable(study.digest)).hex())


def approved_terms(settings: SiteSettings, run: str = "r") -> RunTerms:
    """The terms of a run whose study somebody at the site approved."""
    folder = Path(settings.folder)
    folder.mkdir(exist_ok=True)
    study, place = study_of(run), StudyFolder(folder)
    place.receive(settings.site, study, "")
    place.decide(study.digest, APPROVED, "Dr. Low")
    return terms_of(study)
