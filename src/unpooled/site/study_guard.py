"""The guards that restrict a run to its approved study, while the approval lasts."""

from typing import Any

from unpooled.data.schema import AskColumns
from unpooled.data.summary_question import AskSummary
from unpooled.errors import QueryRefusedError
from unpooled.protocol import codec
from unpooled.protocol.declarations import Work, declared_fields
from unpooled.protocol.messages import Question
from unpooled.protocol.transform import Transform
from unpooled.site.chain import Exchange, Guard
from unpooled.site.study import Study
from unpooled.site.study_store import APPROVED, StudyFolder


class StudyGuard(Guard):
    """Refuse requests of another run than that of the study, and after its end or withdrawal.

    Repeated requests and stages of secure sums are refused too. An answer does not leave if the study was
    withdrawn while it was computed.
    """

    name = "study"

    def __init__(self, study: Study, studies: StudyFolder) -> None:
        self.study, self._studies = study, studies
        self.digest = study.digest
        self.secure = study.secure  # the coordinator receives the site's answers only in secure sums

    def check(self, exchange: Exchange) -> None:
        if exchange.request.request_id.run != self.study.run:
            raise QueryRefusedError(
                f"the approved study is for run {self.study.run}, and this is another run"
            )
        if self.study.expired:
            raise QueryRefusedError(self.study.expiry)
        received = self._studies.read(self.digest)
        if received.state != APPROVED:
            reason = received.decisions[-1].reason if received.decisions else ""
            raise QueryRefusedError(
                f"the site has {received.state} the study{f': {reason}' if reason else ''}"
            )


class StudyLimitsGuard(Guard):
    """Refuse queries beyond the limits of the study: rounds, questions, centres, work, columns."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._max_centers = dict(study.questions)
        self._max_work = {(name, field): most for name, field, most in study.work}

    def check(self, exchange: Exchange) -> None:
        number = exchange.request.request_id.round
        if exchange.parts and number > self._study.rounds:
            raise QueryRefusedError(f"round {number}. The approved study has at most {self._study.rounds}.")
        for part in (asked.part for asked in exchange.parts):
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
            if isinstance(part.question, AskSummary) and self._study.columns and not part.question.columns:
                raise QueryRefusedError(f"{name} about all columns. The approved study is about some.")
            self._check_columns(_columns(part.question, part.transform))

    def _check_work(self, name: str, question: Question[Any]) -> None:
        for field, declaration, value in declared_fields(question, Work):
            amount, limit = declaration.amount(value), self._max_work.get((name, field), 0)
            if not amount <= limit:
                raise QueryRefusedError(
                    f"{name}: {field} = {amount:,}. The approved study allows at most {limit:,}."
                )

    def _check_columns(self, named: tuple[str, ...]) -> None:
        allowed = {*self._study.columns, *self._study.outcomes}
        others = set(named) - allowed if self._study.columns else set()
        if others:
            raise QueryRefusedError(f"the approved study is not about column {min(others)}")


def _columns(question: Question[Any], transform: Transform | None) -> tuple[str, ...]:
    """The names of the columns that a question is about; () if rows have no names."""
    asked: tuple[str, ...] = ()
    if isinstance(question, AskColumns):
        asked = (*question.numbers, *question.categorical)
    elif isinstance(question, AskSummary):
        asked = question.columns
    prepared = () if transform is None or transform.names is None else transform.names
    return (*asked, *prepared)
