"""The audit page for a data protection officer, in the terminal or as one self-contained HTML file."""

from unpooled.data.summary_table import SummaryTable
from unpooled.html.formatting import counted, size, times
from unpooled.html.rendering import render
from unpooled.protocol.messages import asks_for
from unpooled.site.audit.attack import on_log
from unpooled.site.audit.overview import FileRecord, LogReport, RunRecord
from unpooled.site.study import BY_AGREEMENT


def verdict(record: LogReport) -> str:
    """Return one sentence on whether the log is unchanged."""
    if record.intact:
        kept = (
            f", {times(record.countersigned)} countersigned by the coordinator"
            if record.countersigned
            else ""
        )
        return f"The log is intact: {record.lines} lines, each linked to the one before it{kept}."
    first = record.faults[0]
    more = f" and {len(record.faults) - 1} more faults" if len(record.faults) > 1 else ""
    return f"THE LOG IS NOT INTACT: {first}{more}."


def protected(record: LogReport) -> list[str]:
    """Return sentences on what the site answered from."""
    sentences = []
    if "summary" in record.protections:
        digests = ", ".join(digest[:16] for digest in record.summaries)
        sentences.append(
            f"The site answered from its summary table (digest {digests}), which bounds what leaves. A "
            "summary table is a microaggregation: every row is the average of at least g people, i.e. "
            "k-anonymity with k = g."
        )
    if "dp" in record.protections:
        sentences.append(
            "The site answered from its rows, with noise that was charged to the privacy budget."
        )
    if "raw" in record.protections:
        found = on_log(record.path)
        sentences.append("RAW: the site answered exactly, from its rows.")
        if found.cells or not found.masked:
            sentences.append(
                f"From this log {len(found.rows)} rows can be reconstructed with unpooled site log --attack; "
                "a longer search may find more."
            )
        if found.not_judged:
            sentences.append(found.not_judged)
    return sentences


def protection(run: RunRecord) -> list[str]:
    """Return sentences on how the answers of a run were protected."""
    sentences = [transferred(table) for table in run.tables]
    if run.smallest is not None:
        sentences.append(f"No group of fewer than {run.smallest:g} was counted.")
    if run.masked:
        sentences.append(
            f"{counted(run.masked, 'answer')} left masked: only sums over sites are readable. "
            f"{counted(run.keys, 'further message')} held keys and shares for the masks, and nothing about "
            "rows."
        )
    if run.alone:
        sentences.append(
            f"{counted(run.alone, 'answer')} could be read singly by the coordinator, not only in a sum."
        )
    return sentences


def lines(record: LogReport) -> list[tuple[str, list[str]]]:
    """Return headings and sentences, for the terminal."""
    out = [(_title(record), [verdict(record), *_faults(record), *protected(record)])]
    if record.spent:
        out[0][1].append(_budget(record.spent))
    if record.studies:
        out.append(("Studies", [f"{text}." for text in record.studies]))
    if record.exports:
        out.append(("Summary files", [*map(exported, record.exports), AFTER_EXPORT]))
    for run in record.runs:
        sentences = [
            f"{run.first[:19]} to {run.last[:19]} UTC: {counted(run.answers, 'answer')} in "
            f"{counted(len(run.rounds), 'round')}, "
            f"{run.numbers:,} numbers, {size(run.bytes)}.",
            *(
                f"Asked {times(int(number))}: {content} ({name})."
                for content, name, number in asked(run.questions)
            ),
            *protection(run),
            *_refusals(run),
        ]
        out.append((f"Run {run.id}", sentences))
    if not record.runs and not record.exports:
        asked_yet = "" if record.studies else "Nothing was asked yet. "
        out[0][1].append(f"{asked_yet}Nothing has left.")
    return out


AFTER_EXPORT = (
    "After export, limits on the use of a file hold by agreement. An erasure cannot recall a file; the site "
    "sends a deletion notice to its recipient."
)


def transferred(summary: SummaryTable) -> str:
    """Return a sentence on a summary table that left in a run."""
    return (
        f"The summary table left: {counted(summary.people.sum(), 'person')} in "
        f"{counted(len(summary), 'group')} of at least {summary.min_group_size}, columns "
        f"{', '.join(summary.names)}. {BY_AGREEMENT}"
    )


def exported(file: FileRecord) -> str:
    """Return a sentence on a summary file that left."""
    how = "encrypted" if file.encrypted else "NOT ENCRYPTED"
    recalled = " A deletion notice names it." if file.recalled else ""
    return (
        f"{file.utc[:19]} UTC: the summary table left for {file.recipient} ({file.fingerprint}), {how}, for "
        f"the study {file.title} (purpose: {file.purpose}; expires {file.expires}): "
        f"{counted(file.people, 'person')} in {counted(file.groups, 'group')}, columns "
        f"{', '.join(file.columns)}; {size(file.bytes)}, digest {file.file[:16]}, by "
        f"{file.by or 'an account without a name'}.{recalled}"
    )


def _faults(record: LogReport) -> list[str]:
    return [str(fault) for fault in record.faults[1:20]]


def _budget(spent: dict[str, float]) -> str:
    return (
        f"Differential privacy: epsilon {spent['epsilon']:.3g} is spent, {spent['remaining']:.3g} is left "
        f"(delta {spent['delta']:g})."
    )


def page(record: LogReport) -> str:
    """Return the HTML page."""
    rows = [
        (
            run.id,
            run.first[:16].replace("T", " "),
            f"{len(run.rounds)}",
            f"{run.answers}",
            f"{run.refusals}",
            f"{run.numbers:,}",
            size(run.bytes),
            "" if run.smallest is None else f"{run.smallest:g}",
            f"{run.masked}",
        )
        for run in record.runs
    ]
    return render(
        "audit.html",
        title=_title(record),
        integrity=[verdict(record), *_faults(record)],
        sources=protected(record),
        budget=[_budget(record.spent)] if record.spent else [],
        studies=[f"{text}." for text in record.studies],
        files=[*map(exported, record.exports), AFTER_EXPORT] if record.exports else [],
        rows=rows,
        runs=[
            {"id": run.id, "asked": asked(run.questions), "sentences": [*protection(run), *_refusals(run)]}
            for run in record.runs
        ],
        file=record.path.name,
        policies=", ".join(policy[:16] for policy in record.policies),
    )


def asked(questions: dict[str, int]) -> list[tuple[str, str, str]]:
    """Return (content, question, times) of the questions that a site answered."""
    return [(asks_for(name), name, str(times)) for name, times in sorted(questions.items())]


def _title(record: LogReport) -> str:
    return f"What left site {record.known_as}" if record.known_as else "What left the site"


def _refusals(run: RunRecord) -> list[str]:
    return [f"Refused {times(number)}: {reason}." for reason, number in run.reasons.items()]
