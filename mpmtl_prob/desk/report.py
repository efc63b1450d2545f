"""A report for a board: one page of HTML without anything to load, in the study's words, that prints on paper."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from mpmtl_prob.desk.model import OwnModel, check_release
from mpmtl_prob.inference.public.effects import SharedEffects
from mpmtl_prob.privacy import board
from mpmtl_prob.privacy.mechanisms import GaussianShares
from mpmtl_prob.releases.release import Release
from mpmtl_prob.schema.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a202c; background: #fff; }
body { max-width: 46rem; margin: 0 auto; padding: 1.5rem 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 1.8rem 0 .4rem; }
p { margin: .4rem 0; } .quiet { color: #4a5568; font-size: .9rem; }
.mark { border: 2px solid #9b2c2c; color: #9b2c2c; padding: .4rem .8rem; border-radius: 6px; font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; margin: .6rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #e2e8f0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } caption { text-align: left; color: #4a5568; padding-bottom: .3rem; }
figure { margin: .6rem 0; } img, svg { width: 100%; min-width: 34rem; height: auto; }
details { margin: 1rem 0; } code { font-size: .85rem; overflow-wrap: anywhere; }
@media print { @page { size: A4; margin: 18mm; } body { font-size: 11pt; max-width: none; padding: 0; }
  img, svg { min-width: 0; } h2 { break-after: avoid; }
  figure, table, svg { break-inside: avoid; } details > * { display: block; } }
"""
#: Columns of tables, in words.
_HEADS = {
    "mean": "estimate", "lower": "from", "upper": "to", "positive": "chance that it is above 0", "tau": "varies by",
    "alone": "own records alone", "alone_lower": "from", "alone_upper": "to",
}  # fmt: skip


def report(
    release: Release,
    schema: Schema | None = None,
    *,
    model: OwnModel | None = None,
    shared: SharedEffects | None = None,
    contact: str = "",
) -> str:
    """Return a page for a board, as HTML: what was shared, what is promised, what was found.

    Without a model it has public things alone. With one it has that participant's own results too, is marked as private
    to it, and is covered by no guarantee.

    Args:
        release: what was published.
        schema: of the study, whose words are used; default that of the model.
        model: a participant's own.
        shared: the public posterior of the release; default that of the model. Without either no average effects are shown.
        contact: whom to ask, in a sentence.

    Raises:
        ValueError: a schema, a model or a posterior of another study than the release.
    """
    study = schema if schema is not None or model is None else model.schema
    _check(release, study, model, shared)
    known = model.shared if shared is None and model is not None else shared
    words = board.Words() if study is None else board.Words(study.task, study.row)
    heading = "A study over several organisations" if study is None else study.title or f"A study over {study.task}s"
    parts = [f"<h1>{escape(heading)}</h1>", f"<p class='quiet'>{escape(_who(release, words))}</p>"]
    if model is not None:
        parts.append(
            f"<p class='mark'>Private to {escape(model.participant)}. It holds results from its own records, of which no "
            "guarantee says anything.</p>"
        )
    promise = release.guarantee.promise()
    for title, text in board.paragraphs(promise, words):
        parts.append(_section(title, text))
        if title == "Your " + words.row + "s":
            parts.append(_flow(release, words))
        if promise.odds is not None and title == "How much can be learnt":
            parts.append(_bar(promise.odds))
    if known is not None:
        parts.append(_findings(known, model, study, words))
    if contact:
        parts.append(_section("Whom to ask", contact))
    parts.append(_for_experts(release, study, known))
    body = "\n".join(parts)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(heading)}</title><style>{_STYLE}</style></head>\n<body>{body}</body></html>\n"
    )


def _check(release: Any, study: Schema | None, model: OwnModel | None, shared: SharedEffects | None) -> None:
    if not isinstance(release, Release):
        raise ValueError(f"release: expected a Release, got {type(release).__name__}; load one with Release.load(path)")
    if study is not None:
        check_release(study, release)
    for name, posterior in (("model", None if model is None else model.shared), ("shared", shared)):
        if posterior is not None and posterior.release.sigma.tobytes() != release.sigma.tobytes():
            raise ValueError(f"{name}: expected one of this release, got one of another")


def _who(release: Release, words: board.Words) -> str:
    return f"{release.num_tasks} {words.task}s took part. A page for those who decide for one of them."


def _section(title: str, text: str) -> str:
    return f"<h2>{escape(title)}</h2><p>{escape(text).replace(' %', '&nbsp;%')}</p>"


def _flow(release: Release, words: board.Words) -> str:
    """A picture of what goes where."""
    masked = isinstance(release.mechanisms[0], GaussianShares)
    middle = "a masked sum, seen by nobody" if masked else "a curator adds them up"
    numbers = len(release.features)
    boxes = [
        (10, f"each {words.task}'s", f"{words.row} records", "stay where they are"),
        (250, f"{numbers} numbers", f"of each {words.task}", middle),
        (490, "the sum, with noise", "is published", "and can be read by all"),
    ]
    drawn = "".join(
        f"<rect x='{x}' y='10' width='180' height='80' rx='8' fill='#ebf4ff' stroke='#2b6cb0'/>"
        + "".join(
            f"<text x='{x + 90}' y='{35 + 20 * i}' text-anchor='middle' font-size='13' fill='#1a202c'>{escape(line)}</text>"
            for i, line in enumerate(lines)
        )
        for x, *lines in boxes
    )
    arrows = "".join(
        f"<path d='M{x} 50 h46 m-9 -6 l9 6 l-9 6' fill='none' stroke='#2b6cb0' stroke-width='2'/>" for x in (196, 436)
    )
    said = (
        f"Records stay at each {words.task}; {numbers} numbers of each are added up; the sum with noise is published."
    )
    return _drawn(100, said, drawn + arrows)


def _bar(moved: board.Odds) -> str:
    """A picture of a belief before and after."""
    rows = [("before", 0.5), *([("after, typically", moved.typical)] if moved.typical is not None else [])]
    rows.append(("after, at most", moved.most))
    drawn = "".join(
        f"<text x='150' y='{24 + 30 * i}' text-anchor='end' font-size='13' fill='#1a202c'>{escape(label)}</text>"
        f"<rect x='160' y='{10 + 30 * i}' width='400' height='18' fill='#edf2f7'/>"
        f"<rect x='160' y='{10 + 30 * i}' width='{400 * share:.1f}' height='18' fill='#2b6cb0'/>"
        f"<text x='570' y='{24 + 30 * i}' font-size='13' fill='#1a202c'>{escape(board.percent(share))}</text>"
        for i, (label, share) in enumerate(rows)
    )
    said = "; ".join(f"{label} {board.percent(share)}" for label, share in rows)
    return _drawn(10 + 30 * len(rows), said, drawn)


def _drawn(height: int, said: str, shapes: str) -> str:
    """A picture of shapes, and what it says to whoever cannot see it."""
    label = escape(said, quote=True)
    return f"<div class='wide'><svg viewBox='0 0 680 {height}' role='img' aria-label='{label}'>{shapes}</svg></div>"


def _findings(shared: SharedEffects, model: OwnModel | None, study: Schema | None, words: board.Words) -> str:
    unit = "" if study is None or not study.target.unit else f", in {study.target.unit} for one unit of a column"
    table = shared.average_effects()[["mean", "lower", "upper", "positive", "tau"]]
    parts = [
        "<h2>What was found</h2>",
        f"<p>Averages over all {escape(words.task)}s, which are public{escape(unit)}. "
        f"{escape(shared.says())} Intervals hold the truth with a probability of 90 %.</p>",
        _table(table, "Average effects"),
    ]
    if model is not None:
        own = model.coefficients()[["mean", "lower", "upper", "alone", "alone_lower", "alone_upper"]]
        parts.append(_table(own, f"Effects at {model.participant}, with the release and by its own records alone"))
    parts.append(_picture(shared, model))
    return "".join(parts)


def _table(table: pd.DataFrame, caption: str) -> str:
    heads = "".join(f"<th scope='col'>{escape(_HEADS.get(name, name))}</th>" for name in table.columns)
    rows = "".join(
        f"<tr><th scope='row'>{escape(str(name))}</th>{''.join(_cells(table.columns, values))}</tr>"
        for name, values in zip(table.index, table.to_numpy().tolist(), strict=True)
    )
    return (
        f"<div class='wide'><table><caption>{escape(caption)}</caption><thead><tr><th></th>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cells(columns: Iterable[Any], values: Sequence[float]) -> list[str]:
    return [
        f"<td>{escape(board.percent(value) if name == 'positive' else f'{value:.3g}')}</td>"
        for name, value in zip(columns, values, strict=True)
    ]


def _picture(shared: SharedEffects, model: OwnModel | None) -> str:
    """The forest plot, within the page."""
    try:
        import matplotlib.pyplot as plt

        from mpmtl_prob import plots
    except ImportError:  # pictures are an extra
        return ""
    axes = plots.forest(shared) if model is None else plots.forest(model.own, task=model.own.tasks[0])
    figure: Any = axes[0].figure
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=130)
    plt.close(figure)
    said = "Effects with intervals, as in the table" + ("" if model is None else ", and this participant's own")
    source = f"data:image/png;base64,{base64.b64encode(held.getvalue()).decode()}"
    return f"<figure class='wide'><img alt='{said}' src='{source}'></figure>"


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
