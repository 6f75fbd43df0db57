"""The guard that restricts a run to its approved study, while the approval lasts."""

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
    """Refuse queries outside the study: of another run, after its end or withdrawal, or beyond its limits."""

    def __init__(self, study: Study, folder: Path) -> None:
        self.study, self._studies = study, StudyFolder(folder)
        self._max_centers = dict(study.questions)
        self._max_work = {(name, field): most for name, field, most in study.work}
        self.digest = study.digest
        self.secure = study.secure  # the coordinator receives the site's answers only in secure sums

    def check(self, log: Log) -> None:
        """Raise LedgerError unless the log approves the study."""
        check_approved(log, self.digest)

    def check_request(self, request: Request) -> None:
        if request.request_id.run != self.study.run:
            raise QueryRefusedError(
                f"the approved study is for run {self.study.run}, and this is another run"
            )
        self._check_lasts()

    def _check_lasts(self) -> None:
        if self.study.expired:
            raise QueryRefusedError(f"the study expired at {self.study.expires}")
        received = self._studies.read(self.digest)
        if received.state != APPROVED:
            reason = received.decisions[-1].reason if received.decisions else ""
            raise QueryRefusedError(
                f"the site has {received.state} the study{f': {reason}' if reason else ''}"
            )

    def check_questions(self, request: Request, rows: tuple[Rows, ...]) -> None:
        if request.request_id.round > self.study.rounds:
            raise QueryRefusedError(
                f"round {request.request_id.round}. The approved study has at most {self.study.rounds}."
            )
        for part in request.parts:
            name = codec.name_of(type(part.question))
            if name not in self._max_centers:
                raise QueryRefusedError(f"the approved study does not contain {name}")
            lengths = part.question.lengths()
            clusters = max(lengths.get("k", 0), lengths.get("M", 0))  # M: cells of a noisy question
            if clusters > self._max_centers[name]:
                raise QueryRefusedError(
                    f"{name} about {clusters} centres. The approved study allows at most "
                    f"{self._max_centers[name]}."
                )
            self._check_work(name, part.question)
            self._check_columns(_columns(part.question, part.transform))

    def _check_work(self, name: str, question: Question[Any]) -> None:
        for field, declaration, value in declared_fields(question, Work):
            amount, limit = declaration.amount(value), self._max_work.get((name, field), 0)
            if not amount <= limit:
                raise QueryRefusedError(
                    f"{name}: {field} = {amount:,}. The approved study allows at most {limit:,}."
                )

    def _check_columns(self, named: tuple[str, ...]) -> None:
        others = set(named) - set(self.study.columns) if self.study.columns else set()
        if others:
            raise QueryRefusedError(f"the approved study is not about column {min(others)}")

    def before_release(self, request: Request, answer: Response) -> None:
        self._check_lasts()  # an answer does not leave if the study was withdrawn meanwhile


def _columns(question: Question[Any], transform: Any) -> tuple[str, ...]:
    """The names of the columns that a question is about; () if rows have no names."""
    asked = (*question.numbers, *question.categorical) if isinstance(question, AskColumns) else ()
    prepared = () if transform is None or transform.names is None else transform.names
    return (*asked, *prepared)
