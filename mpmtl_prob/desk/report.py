"""Report for a board: one self-contained page of HTML, in the study's words, that also prints on paper."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mpmtl_prob._util.checks import whole
from mpmtl_prob._util.words import plural
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.desk import pictures
from mpmtl_prob.desk.model import OwnModel, check_release
from mpmtl_prob.desk.pictures import Interval
from mpmtl_prob.inference.public.effects import SharedEffects
from mpmtl_prob.privacy import Ledger, Unit, board
from mpmtl_prob.privacy.mechanisms import GaussianShares
from mpmtl_prob.releases.release import Release
from mpmtl_prob.schema.columns import Category, Number
from mpmtl_prob.schema.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a202c; background: #fff; }
body { max-width: 46rem; margin: 0 auto; padding: 1.5rem 1rem; }
* { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 1.8rem 0 .4rem; }
p { margin: .4rem 0; } .quiet { color: #4a5568; font-size: .9rem; }
.mark { border: 2px solid #9b2c2c; color: #9b2c2c; padding: .4rem .8rem; border-radius: 6px; font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; margin: .6rem 0; width: 100%; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid #e2e8f0; text-align: right; vertical-align: baseline; }
thead th { vertical-align: bottom; } td { white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
caption { text-align: left; color: #4a5568; padding-bottom: .3rem; }
details { margin: 1rem 0; } code { font-size: .85rem; overflow-wrap: anywhere; white-space: pre-line; }
.on-paper { display: none; }
@media (max-width: 34rem) { table { font-size: .78rem; } th, td { padding: .25rem .2rem; } td { white-space: normal; } }
@media print { @page { size: A4; margin: 18mm; } body { font-size: 11pt; max-width: none; padding: 0; }
  h2, caption { break-after: avoid; } table, svg, details { break-inside: avoid; } details > * { display: block; }
  .on-paper { display: block; position: fixed; bottom: -10mm; font-size: 9pt; color: #9b2c2c; } }
"""


NO_BREAK = "\u00a0"
_OWN = ("mean", "lower", "upper", "alone", "alone_lower", "alone_upper")


def report(
    release: Release,
    schema: Schema | None = None,
    *,
    model: OwnModel | None = None,
    shared: SharedEffects | None = None,
    contact: str = "",
    curator: str = "",
    prepared: datetime.date | None = None,
    group: int = 1,
    account: Ledger | None = None,
) -> str:
    """Return a page for a board, as HTML: what was shared, what is promised, what was found.

    Without a model, the page contains public information only. With one it also contains that participant's own results, is
    marked as private to it, and is not covered by the privacy guarantee.

    Args:
        release: the release to report on.
        schema: schema of the study, whose words are used; default that of the model.
        model: a participant's own model.
        shared: the public posterior of the release; default that of the model. Without either, no average effects are shown.
        contact: whom to ask, in a sentence.
        curator: name of the curator, who adds up the lists and keeps the ledger.
        prepared: date of the page.
        group: number of tasks of the board's own, such as the hospitals of one owner, who are promised less together.
        account: the curator's ledger, of which the page says how much is spent and left.

    Raises:
        ValueError: a schema, a model or a posterior of another study than the release; a group below 1 or above the number
            of tasks; or a ledger of another unit than whole tasks.
    """
    study = schema if schema is not None or model is None else model.schema
    _check(release, study, model, shared)
    whole("group", group, 1, release.num_tasks)
    if account is not None and account.unit != Unit.TASK:
        raise ValueError(f"account: expected a ledger of whole tasks, as the release, got one of a {account.unit}")
    known = model.shared if shared is None and model is not None else shared
    words = board.Words() if study is None else board.Words(study.task, study.row)
    heading = (
        "A study over several organisations" if study is None else study.title or f"A study over {plural(study.task)}"
    )
    parts = [f"<h1>{escape(heading)}</h1>", f"<p class='quiet'>{escape(_who(release, words, curator, prepared))}</p>"]
    if model is not None:
        parts.append(
            f"<p class='mark'>Private to {escape(model.participant)}. This page holds results from its own records. The "
            "privacy guarantee does not cover them: do not pass them on.</p>"
            f"<p class='on-paper'>Private to {escape(model.participant)}</p>"
        )
    promise = release.guarantee.promise()
    for title, text in board.paragraphs(promise, words):
        parts.append(_section(title, text))
        if title == f"Your {words.rows}":
            parts.append(_flow(release, words))
        if promise.odds is not None and title == "How much can be learnt":
            parts.append(_odds(promise.odds))
            if group > 1:
                parts.append(
                    _section(f"To {group} {plural(words.task)} of one owner", _to_group(release, words, group))
                )
    if account is not None:
        parts.append(_section("What is left for further releases", _left(account)))
    if known is not None:
        parts.append(_findings(known, model, study, words))
    parts.append(_section("Whom to ask", contact or _whom(curator)))
    parts.append(_for_experts(release, study, known))
    body = "\n".join(parts)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(heading)}</title><style>{_STYLE}{pictures.STYLE}</style></head>\n<body>{body}</body></html>\n"
    )


def _check(release: Any, study: Schema | None, model: OwnModel | None, shared: SharedEffects | None) -> None:
    if not isinstance(release, Release):
        raise ValueError(f"release: expected a Release, got {type(release).__name__}; load one with Release.load(path)")
    for name, posterior in (("model", None if model is None else model.shared), ("shared", shared)):
        if posterior is not None and posterior.release.sigma.tobytes() != release.sigma.tobytes():
            of = [one.study[:12] if one.study else "none" for one in (release, posterior.release)]
            raise ValueError(
                f"{name}: expected one of this release, of study {of[0]}, got one of another, of study {of[1]}; take the "
                "release that it was fitted with, or fit it anew"
            )
    if study is not None:
        check_release(study, release)


def _who(release: Release, words: board.Words, curator: str, prepared: datetime.date | None) -> str:
    said = [f"{release.num_tasks} {plural(words.task)} took part. This page is for the boards that decide for them."]
    if curator:
        said.append(
            f"The curator, who adds up what they send and keeps the ledger of all releases, is {curator.strip().rstrip('.')}."
        )
    if prepared is not None:
        said.append(f"Prepared on {prepared.day} {prepared:%B %Y}, about this release alone.")
    return " ".join(said)


def _whom(curator: str) -> str:
    """Return whom to ask where nobody was named for it."""
    if curator:
        return f"The curator, {curator.strip().rstrip('.')}, knows the study and keeps its ledger."
    return "Ask whoever brought you this page, or the study's curator; nobody was named when it was made."


def _to_group(release: Release, words: board.Words, group: int) -> str:
    """Return the promise to tasks of one owner, of whom an attacker who doubts one may doubt all."""
    odds = release.guarantee.promise(group).odds
    assert odds is not None
    return (
        f"An attacker who is in doubt about all {group} {plural(words.task)} of an owner at once may give the right answer "
        f"about them {board.to_group(odds)}"
    )


def _left(account: Ledger) -> str:
    """Return what the curator's ledger has spent and left, in odds."""
    spent = account.spent_adaptively if account.adaptive else account.spent
    left = account.left
    said = [
        f"The curator's ledger allows all releases together to move an attacker from 50 % to "
        f"{board.bound(_certainty(account.epsilon))}, rare exceptions aside.",
        f"Those up to now can move one to {board.bound(_certainty(spent.epsilon))}." if spent.epsilon else "",
    ]
    said.append(
        "It would pay for no further release."
        if left is None
        else f"It would still pay for one that alone moves an attacker to {board.bound(_certainty(left.epsilon))}, and then "
        "refuses any other. Boards may ask for less."
    )
    return " ".join(filter(None, said))


def _certainty(epsilon: float) -> float:
    """Return the largest probability that eps gives to what was thought as likely as not."""
    return float(1 / (1 + np.exp(-epsilon)))


def _section(title: str, text: str) -> str:
    return f"<h2>{escape(title)}</h2><p>{escape(text).replace(' %', '&nbsp;%')}</p>"


def _flow(release: Release, words: board.Words) -> str:
    """Draw where data go: a picture of the flow of information."""
    masked = isinstance(release.mechanisms[0], GaussianShares)
    middle = "a masked sum, seen by nobody" if masked else "a curator adds them up"
    numbers = len(release.features)
    boxes = [
        (f"each {words.task}'s {words.row} records", "stay where they are"),
        (f"{numbers} numbers of each {words.task}", middle),
        ("the sum, with noise", "is published, and can be read by all"),
    ]
    said = (
        f"Records stay at each {words.task}; {numbers} numbers of each are added up; the sum with noise is published."
    )
    return pictures.flow(boxes, said)


def _odds(moved: board.Odds) -> str:
    """Draw an attacker's belief before and after the release (membership inference)."""
    rows = [("before", 0.5), ("half the time", moved.typical), ("exceptions aside", moved.most)]
    return pictures.bars([(label, share, board.at_most(share)) for label, share in rows])


class _Scale(NamedTuple):
    """Scale of effects on the page, for readers who do not know logarithms.

    Attributes:
        words: explanation of a number, in a sentence.
        none: the number that means no effect.
        effect: function from an effect to the number shown.
        intercept: the same for an intercept.
        spread: the same for a standard deviation between tasks.
        differ: words for that standard deviation.
    """

    words: str
    none: float
    effect: Callable[[Any], Any]
    intercept: Callable[[Any], Any]
    spread: Callable[[Any], Any]
    differ: str

    @classmethod
    def of(cls, study: Schema | None) -> _Scale:
        """Return the scale of a study's outcome."""

        def same(value: Any) -> Any:
            return value

        def probability(value: Any) -> Any:
            return 1 / (1 + np.exp(-value))

        intercept: Callable[[Any], Any]
        if study is None or study.target.kind == "number":
            unit = f" in {study.target.unit}" if study and study.target.unit else ""
            what = "the outcome" if study is None else study.target.column
            words = f"Each number is by how much {what} changes{unit} where a column is larger by one unit."
            return cls(words, 0.0, same, same, same, "SD between")
        if isinstance(study.target.values, Category):
            what = f"the odds of {study.target.column} = {study.target.values.levels[1]}"
            intercept = probability
        else:
            what, intercept = f"the rate of {study.target.column}", np.exp
        words = f"Each number is by what one unit more of a column multiplies {what}, so that 1 is no effect."
        return cls(words, 1.0, np.exp, intercept, np.exp, "SD, as a factor, between")

    def table(self, table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
        """Return columns of the table with the numbers that are shown."""
        written = table[list(columns)].apply(self.effect)
        if NAME in table.index:
            written.loc[NAME] = self.intercept(table.loc[NAME, list(columns)].astype(float))
        return written


def _findings(shared: SharedEffects, model: OwnModel | None, study: Schema | None, words: board.Words) -> str:
    scale, labels = _Scale.of(study), {} if study is None else _labels(study)
    averages = shared.average_effects()
    written = scale.table(averages, ["mean", "lower", "upper"])
    columns = {
        "estimate": _numbers(written["mean"]),
        "90 % interval": _intervals(written, "lower", "upper"),
        f"chance of being above {scale.none:g}": [
            "" if name == NAME else _short_percent(share) for name, share in averages["positive"].items()
        ],
        f"{scale.differ} {plural(words.task)}": _numbers(scale.spread(averages["tau"])),
    }
    parts = [
        "<h2>What was found</h2>",
        f"<p>Average effects over all {escape(plural(words.task))} follow from the published sum alone. "
        f"{escape(scale.words)} {escape(shared.says())} "
        f"Intervals are 90&nbsp;% credible intervals; SD is the standard deviation. {escape(_at_centres(study))}</p>",
        _table(list(averages.index), columns, labels, "Average effects"),
    ]
    if study is not None and study.covariates:
        parts.append(_slopes(shared, study, scale, labels))
    if model is not None:
        own = scale.table(model.coefficients(), _OWN)
        columns = {
            "with the release": _numbers(own["mean"]),
            "90 % interval": _intervals(own, "lower", "upper"),
            "own records alone": _numbers(own["alone"]),
            "90 % interval ": _intervals(own, "alone_lower", "alone_upper"),
        }
        caption = f"Effects at {model.participant}, with the release and by its own records alone"
        parts.append(_table(list(own.index), columns, labels, caption))
    parts.append(_forest(shared, model, scale, labels, words))
    return "".join(parts)


def _slopes(shared: SharedEffects, study: Schema, scale: _Scale, labels: Mapping[Hashable, str]) -> str:
    """Return a table for every covariate: how average effects change with it."""
    slopes, parts = shared.covariate_slopes(), []
    at = ", ".join(covariate.at_centre for covariate in study.covariates)
    parts.append(f"<p>Averages, above and in the pictures, are of {escape(plural(study.task))} with {escape(at)}.</p>")
    changes = "changes" if scale.none == 0 else "is multiplied"
    for covariate in study.covariates:
        table = slopes.xs(covariate.name, level="covariate")
        written = (table[["mean", "lower", "upper"]] * covariate.scale).apply(scale.effect)
        columns = {"change": _numbers(written["mean"]), "90 % interval": _intervals(written, "lower", "upper")}
        caption = f"By how much an effect {changes} where {covariate.name} is larger by {covariate.scale:g}"
        parts.append(_table(list(table.index), columns, labels, caption))
    return "".join(parts)


def _short_percent(share: float) -> str:
    """Return a probability in per cent for a narrow column."""
    written = board.about(share).replace("more than ", ">").replace("less than ", "<")
    return written.replace(" ", NO_BREAK)


def _labels(study: Schema) -> dict[Hashable, str]:
    """Return labels of effects by name, with the unit of a number, or the level with which another is compared."""
    labels: dict[Hashable, str] = {}
    for name, column in study.columns.items():
        if isinstance(column, Category):
            against = f", against {column.reference}"
            labels |= {f"{name}[{level}]": f"{name}: {level}{against}" for level in column.others}
        elif column.unit:
            labels[name] = f"{name} ({column.unit})"
    return labels


def _at_centres(study: Schema | None) -> str:
    """Explain in a sentence to which values of the columns the intercept refers."""
    if study is None:
        return "The intercept is where all columns are at their reference values."
    used = [study.columns[name] for name in study.design.used]
    at = [f"{column.name} {column.centre:g} {column.unit}".strip() for column in used if isinstance(column, Number)]
    mixed = [column.name for column in used if isinstance(column, Category)]
    at += [f"the study's usual mix of {' and '.join(mixed)}"] if mixed else []
    last = f" and {at[-1]}" if len(at) > 1 else ""
    what = {"number": "", "binary": "the probability ", "count": "the rate "}[study.target.kind]
    return f"The intercept is {what}of {plural(study.row)} with {', '.join(at[:-1] or at)}{last}."


def _numbers(values: pd.Series) -> list[str]:
    return [f"{value:.3g}" for value in values]


def _intervals(table: pd.DataFrame, lower: str, upper: str) -> list[str]:
    return [f"{low:.3g} to {high:.3g}" for low, high in zip(table[lower], table[upper], strict=True)]


def _table(
    names: Sequence[Hashable], columns: Mapping[str, Sequence[str]], labels: Mapping[Hashable, str], caption: str
) -> str:
    heads = "".join(f"<th scope='col'>{escape(head)}</th>" for head in columns)
    rows = "".join(
        f"<tr><th scope='row'>{escape(labels.get(name, str(name)))}</th>"
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for name, *cells in zip(names, *columns.values(), strict=True)
    )
    return (
        f"<div class='wide'><table><caption>{escape(caption)}</caption><thead><tr><th></th>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _forest(
    shared: SharedEffects, model: OwnModel | None, scale: _Scale, labels: Mapping[Hashable, str], words: board.Words
) -> str:
    """Draw effects with intervals, a panel for each."""
    averages, new = (
        scale.table(table, ["mean", "lower", "upper"]) for table in (shared.average_effects(), shared.new_task())
    )
    own = None if model is None else scale.table(model.coefficients(), _OWN)
    drawn = []
    for name in averages.index:
        lines = []
        if own is not None:
            effect = own.loc[name]
            alone = effect["alone_lower"], effect["alone_upper"], effect["alone"]
            lines.append(Interval("own records", *alone, pictures.GREY))
            lines.append(Interval("with the release", effect["lower"], effect["upper"], effect["mean"], pictures.BLUE))
        of_all, other = averages.loc[name], new.loc[name]
        lines.append(Interval("average of all", of_all["lower"], of_all["upper"], of_all["mean"], pictures.ORANGE))
        lines.append(Interval(f"single {words.task}", other["lower"], other["upper"], None, pictures.ORANGE))
        drawn.append((labels.get(name, str(name)), lines, None if name == NAME else scale.none))
    return pictures.panels(drawn)


def _for_experts(release: Release, study: Schema | None, shared: SharedEffects | None) -> str:
    facts = {"guarantee": str(release.guarantee), "mechanism": "; ".join(map(str, release.mechanisms))}
    facts |= {"arithmetic": release.guarantee.arithmetic, "library": f"mpmtl_prob {release.library_version}"}
    if study is not None:
        facts["study"] = study.digest
    if shared is not None:
        facts["posterior"] = str(shared.diagnose())
    rows = "".join(
        f"<tr><th scope='row'>{escape(name)}</th><td style='text-align:left;white-space:normal'><code>{escape(value)}</code>"
        "</td></tr>"
        for name, value in facts.items()
    )
    return f"<details open><summary><b>For experts</b></summary><table>{rows}</table></details>"
