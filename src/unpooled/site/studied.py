"""The guard that holds a run to its study: asked is what was approved, while the approval lasts."""

from pathlib import Path
from typing import Any

from unpooled.core import codec
from unpooled.core.arrays import Rows
from unpooled.core.declarations import Work, sent
from unpooled.core.exchange import Answer, Envelope
from unpooled.core.messages import Question
from unpooled.data.schema import AskColumns
from unpooled.errors import Refused
from unpooled.site.log import Log
from unpooled.site.site import Guard
from unpooled.site.study import Study
from unpooled.site.study_folder import APPROVED, StudyFolder, check_approved


class Studied(Guard):
    """Refuse what is not of the study: another run, later than its end, withdrawn, other questions, more."""

    def __init__(self, study: Study, folder: Path) -> None:
        self.study, self._kept = study, StudyFolder(folder)
        self._most = dict(study.questions)
        self._work = {(name, field): most for name, field, most in study.work}
        self.digest = study.digest
        self.secure = study.secure  # the site's replies are seen in secure sums alone

    def check(self, log: Log) -> None:
        """Raise LedgerError unless the log approves the study."""
        check_approved(log, self.digest)

    def admit(self, post: Envelope) -> None:
        if post.turn.run != self.study.run:
            raise Refused(f"the study that was approved is of run {self.study.run}, and this is another run")
        self._check_lasts()

    def _check_lasts(self) -> None:
        if self.study.expired:
            raise Refused(f"the study expired at {self.study.expires}")
        kept = self._kept.read(self.digest)
        if kept.state != APPROVED:
            why = f": {kept.decisions[-1].reason}" if kept.decisions and kept.decisions[-1].reason else ""
            raise Refused(f"the site has {kept.state} the study{why}")

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        if post.turn.round > self.study.rounds:
            raise Refused(f"round {post.turn.round}; the approved study has at most {self.study.rounds}")
        for part in post.parts:
            name = codec.name_of(type(part.question))
            if name not in self._most:
                raise Refused(f"the approved study does not ask {name}")
            lengths = part.question.lengths()
            clusters = max(lengths.get("k", 0), lengths.get("M", 0))  # M: cells of a noisy question
            if clusters > self._most[name]:
                raise Refused(
                    f"{name} about {clusters} centres; the approved study asks about at most "
                    f"{self._most[name]}"
                )
            self._check_work(name, part.question)
            self._check_columns(_columns(part.question, part.view))

    def _check_work(self, name: str, question: Question[Any]) -> None:
        for field, declaration, value in sent(question, Work):
            asked, most = declaration.asked(value), self._work.get((name, field), 0)
            if not asked <= most:
                raise Refused(f"{name}: {field} = {asked:,}. The approved study asks for at most {most:,}.")

    def _check_columns(self, named: tuple[str, ...]) -> None:
        others = set(named) - set(self.study.columns) if self.study.columns else set()
        if others:
            raise Refused(f"the approved study is not about column {min(others)}")

    def leaving(self, post: Envelope, answer: Answer) -> None:
        self._check_lasts()  # withdrawn while it was computed: it does not leave


def _columns(question: Question[Any], view: Any) -> tuple[str, ...]:
    """The names of the columns that a question is about; none where rows have no names."""
    asked = (*question.numbers, *question.categories) if isinstance(question, AskColumns) else ()
    seen = () if view is None or view.names is None else view.names
    return (*asked, *seen)
