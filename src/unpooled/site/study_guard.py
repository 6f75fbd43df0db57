"""The guard that holds a run to its study: asked is what was approved, while the approval lasts."""

from pathlib import Path
from typing import Any

from unpooled.data.schema import AskColumns
from unpooled.errors import QueryRefusedError
from unpooled.protocol import codec
from unpooled.protocol.declarations import Work, declared_fields
from unpooled.protocol.exchange import Request, Response
from unpooled.protocol.messages import Question
from unpooled.site.log import Log
from unpooled.site.site import Guard
from unpooled.site.study import Study
from unpooled.site.study_store import APPROVED, StudyFolder, check_approved
from unpooled.typing import Rows


class StudyGuard(Guard):
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

    def check_request(self, request: Request) -> None:
        if request.request_id.run != self.study.run:
            raise QueryRefusedError(
                f"the study that was approved is of run {self.study.run}, and this is another run"
            )
        self._check_lasts()

    def _check_lasts(self) -> None:
        if self.study.expired:
            raise QueryRefusedError(f"the study expired at {self.study.expires}")
        kept = self._kept.read(self.digest)
        if kept.state != APPROVED:
            why = f": {kept.decisions[-1].reason}" if kept.decisions and kept.decisions[-1].reason else ""
            raise QueryRefusedError(f"the site has {kept.state} the study{why}")

    def check_questions(self, request: Request, views: tuple[Rows, ...]) -> None:
        if request.request_id.round > self.study.rounds:
            raise QueryRefusedError(
                f"round {request.request_id.round}; the approved study has at most {self.study.rounds}"
            )
        for part in request.parts:
            name = codec.name_of(type(part.question))
            if name not in self._most:
                raise QueryRefusedError(f"the approved study does not ask {name}")
            lengths = part.question.lengths()
            clusters = max(lengths.get("k", 0), lengths.get("M", 0))  # M: cells of a noisy question
            if clusters > self._most[name]:
                raise QueryRefusedError(
                    f"{name} about {clusters} centres; the approved study asks about at most "
                    f"{self._most[name]}"
                )
            self._check_work(name, part.question)
            self._check_columns(_columns(part.question, part.transform))

    def _check_work(self, name: str, question: Question[Any]) -> None:
        for field, declaration, value in declared_fields(question, Work):
            asked, most = declaration.amount(value), self._work.get((name, field), 0)
            if not asked <= most:
                raise QueryRefusedError(
                    f"{name}: {field} = {asked:,}. The approved study asks for at most {most:,}."
                )

    def _check_columns(self, named: tuple[str, ...]) -> None:
        others = set(named) - set(self.study.columns) if self.study.columns else set()
        if others:
            raise QueryRefusedError(f"the approved study is not about column {min(others)}")

    def before_release(self, request: Request, answer: Response) -> None:
        self._check_lasts()  # withdrawn while it was computed: it does not leave


def _columns(question: Question[Any], transform: Any) -> tuple[str, ...]:
    """The names of the columns that a question is about; none where rows have no names."""
    asked = (*question.numbers, *question.categorical) if isinstance(question, AskColumns) else ()
    seen = () if transform is None or transform.names is None else transform.names
    return (*asked, *seen)
