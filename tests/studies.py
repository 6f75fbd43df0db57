"""Studies for tests: proposed as ``unpooled federation run`` does, and approved as an officer does."""

import os
import signal
from dataclasses import replace
from pathlib import Path

from unpooled.app.job import Job, RemoteRunOptions
from unpooled.app.propose_study import propose_study
from unpooled.data.schema_agreement import PreparationOptions
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.site.ledger import Ledger
from unpooled.site.session import RunTerms, SiteSession, SiteSettings
from unpooled.site.study import Study, signable
from unpooled.site.study_store import APPROVED, StudyFolder


def study_of(run: str = "r", identity: Identity | None = None, *, ks=(2, 3), method="lloyd", **how) -> Study:
    """The study of a job; with an identity it names its key."""
    job = Job(("x",), ks, method=method, remote=RemoteRunOptions("", run, ("a",), purpose="to find groups"))
    study, _ = propose_study(job)
    return replace(study, authority="" if identity is None else identity.public.hex(), **how)


def private_study(
    run: str = "r", identity: Identity | None = None, *, epsilon: float = 0.1, columns=("x", "y"), **how
) -> Study:
    """The study of a private job about columns with bounds of -30 to 30."""
    preparation_options = PreparationOptions(bounds=tuple((name, -30.0, 30.0) for name in columns))
    remote = RemoteRunOptions("", run, ("a",), purpose="to find groups")
    job = Job(("x",), (2,), epsilon=epsilon, preparation_options=preparation_options, remote=remote)
    study, _ = propose_study(job)
    return replace(study, authority="" if identity is None else identity.public.hex(), **how)


def terms_of(study: Study, identity: Identity | None = None) -> RunTerms:
    """The terms of a run, its study signed by an identity."""
    return RunTerms.from_study(study, "" if identity is None else identity.sign(signable(study.digest)).hex())


def approved_terms(settings: SiteSettings, run: str = "r", study: Study | None = None) -> RunTerms:
    """The terms of a run whose study somebody at the site approved."""
    folder = Path(settings.folder)
    folder.mkdir(exist_ok=True)
    study, place = study or study_of(run), StudyFolder(folder)
    place.receive(settings.site, study, "")
    place.decide(study.digest, APPROVED, "Dr. Low")
    return terms_of(study)


def answer_and_die(settings: SiteSettings, terms: RunTerms, data: bytes, dies: str) -> None:
    """Answer a request in a process that is killed when its ledger comes to the method ``dies``."""
    setattr(Ledger, dies, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    SiteSession(settings, terms).respond(data)
