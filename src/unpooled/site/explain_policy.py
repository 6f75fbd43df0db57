"""A policy explained in plain words, and the template of a policy file."""

from unpooled.site.allow_list import only_totals
from unpooled.site.policy import Policy

TEMPLATE = """\
# What this site answers. Everything not said here has the value shown by `unpooled policy explain`.
# Unknown keys are refused; nothing that a coordinator sends can loosen a rule.
version = 1

[site]
id = "{site}"                    # the name under which the site joins
contact = ""                     # whom to ask about this policy

[jobs]
algorithms = [{algorithms}]
modules = []                     # installed modules whose methods it trusts, e.g. "hospital_methods"
describe = true                  # sums for the report: profiles, spread, how sites differ
max_runs = 1000
max_rounds = 1000                # a run
max_parameters_per_row = 0       # k (d + 1) / rows, e.g. 0.33; 0: no limit

[disclosure]
min_cluster_size = 5             # no group of fewer rows is shown
min_site_rows = 20               # with fewer rows the site answers nothing
round_counts_to = 1              # e.g. 5: counts in fives
differencing = "warn"            # off | warn | refuse: groups that differ by a few rows from one shown before
group_rows = 0                   # e.g. 5: rows count as the means of fixed groups of at least 5 similar ones

# [domain]                       # where values can lie: stated here, never computed from rows
# columns = ["age", "bmi"]
# lower = [0, 10]
# upper = [110, 80]

[aggregation]
secure = "preferred"             # off | preferred | required: only sums over sites can be read
min_sites = 3

# [dp]                           # differential privacy: only noisy answers, and a budget for all of them
# delta = 1e-6
# epsilon_total = 1.0

[wire]
max_message_bytes = 16777216
"""


def template(site: str) -> str:
    """A template of a policy file: the defaults, each with its meaning."""
    algorithms = ", ".join(f'"{name}"' for name in Policy().jobs.algorithms)
    return TEMPLATE.format(site=site, algorithms=algorithms)


def explain(policy: Policy) -> list[tuple[str, list[str]]]:
    """A policy in sentences, by heading: what the site answers, refuses, protects and records."""
    jobs, shown, domain = policy.jobs, policy.disclosure, policy.domain
    will = [
        f"It takes part in: {', '.join(jobs.algorithms) or 'nothing'}.",
        "It tells the names and kinds of its columns, levels of categories that at least "
        f"{shown.min_cluster_size} rows have, and roughly how large values are.",
        "It sends counts, sums and means of groups of rows, never a row.",
    ]
    if jobs.modules:
        will.append(f"It trusts the methods of these installed modules: {', '.join(jobs.modules)}.")
    if jobs.describe:
        will.append("It sends sums for the report: profiles, spread, how rows lie between clusters.")
    will.append(f"At most {jobs.max_runs} runs of at most {jobs.max_rounds} rounds.")
    wont = [
        f"A group of fewer than {shown.min_cluster_size} rows is left out, count and sum alike; so is what "
        "would let such a group be found by subtraction.",
        f"With fewer than {shown.min_site_rows} rows the site answers nothing.",
        "A question of another method, of other widths than its rows, with centres that are not numbers or "
        "that repeat, or of a round that is over, is refused.",
        f"A message of more than {policy.wire.max_message_bytes:,} bytes is not read.",
        "Code that a coordinator sends is not run.",
    ]
    if jobs.max_parameters_per_row:
        wont.append(
            f"More than {jobs.max_parameters_per_row:g} numbers per row of one clustering are refused."
        )
    if domain.columns:
        spans = zip(domain.columns, domain.lower, domain.upper, strict=True)
        stated = ", ".join(f"{column} {low:g} to {high:g}" for column, low, high in spans)
        wont.append(f"Centres far outside of the stated domain are refused: {stated}.")
    if shown.round_counts_to > 1:
        will.append(f"Counts are rounded to multiples of {shown.round_counts_to}.")
    word = {
        "off": "Groups that differ by a few rows from one shown before are not looked for.",
        "warn": "Groups that differ by a few rows from one shown before are counted in the log.",
        "refuse": "A question whose groups differ by a few rows from one shown before is refused; "
        "k-means then stops a little before its end.",
    }[shown.differencing]
    if shown.group_rows:
        word += (
            f" Rows are in fixed groups of at least {shown.group_rows} similar ones, and questions about "
            "clusters see each as its group's mean: however many are asked, rows of a group cannot be told "
            "apart."
        )
    sums = {
        "off": "Its sums may be read by the coordinator as they are.",
        "preferred": "Its sums are masked where the run offers it, so that only the sum over sites can be "
        "read; in other runs they may be read as they are.",
        "required": f"It answers only in secure sums over at least {policy.aggregation.min_sites} sites; "
        "methods that ask to see single replies are refused (those that do not: "
        f"{', '.join(only_totals())}).",
    }[policy.aggregation.secure]
    noise = (
        f"Answers carry noise: ({policy.dp.epsilon_total:g}, {policy.dp.delta:g})-differential privacy for "
        "a row, over all runs together. When it is spent, nothing more is answered."
        if policy.private
        else "Answers carry no noise."
    )
    return [
        ("Answers", will),
        ("Refuses", wont),
        ("Protects", [sums, word, noise]),
        ("Records", ["Every answer and refusal, byte for byte, in a log that shows any later change."]),
    ]
