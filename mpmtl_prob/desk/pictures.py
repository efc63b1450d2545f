"""Pictures of a report in HTML and SVG: flow of data, odds before and after, and effects with intervals.

They adapt to the width of the page: boxes stand side by side or below each other, panels in two columns or in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

STYLE = """
.flow { display: flex; align-items: center; gap: .4rem; margin: .8rem 0; text-align: center; font-size: .9rem; }
.flow div { flex: 1; border: 1px solid #2b6cb0; border-radius: 8px; padding: .5rem .4rem; background: #ebf4ff; }
.flow i { font-style: normal; color: #2b6cb0; font-size: 1.4rem; line-height: 1; } .flow b { display: block; }
.bar { max-width: 32rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: .3rem 1rem; }
svg { width: 100%; height: auto; display: block; font-family: inherit; }
@media (max-width: 34rem) {
  .flow { flex-direction: column; } .flow div { width: 90%; } .flow i { transform: rotate(90deg); }
}
@media print { .panels { grid-template-columns: 1fr 1fr; } .flow, .bar, .panels > svg { break-inside: avoid; } }
"""
BLUE, ORANGE, GREY, INK = "#2b6cb0", "#c05621", "#718096", "#1a202c"
_WIDTH, _LEFT, _RIGHT = 340, 108, 12  # widths of a panel, of its labels, and of its right margin


class Interval(NamedTuple):
    """Interval: one line of a panel.

    Attributes:
        label: label of the line.
        lower: lower end.
        upper: upper end.
        middle: the estimate; None for a range without one.
        colour: colour of the line.
    """

    label: str
    lower: float
    upper: float
    middle: float | None
    colour: str


def flow(boxes: Sequence[tuple[str, str]], said: str) -> str:
    """Draw boxes one after another, each with a heading and a line below it.

    Args:
        boxes: headings and lines, in order.
        said: the same in a sentence, for screen readers.
    """
    drawn = "<i aria-hidden='true'>&#8594;</i>".join(
        f"<div><b>{escape(head)}</b>{escape(line)}</div>" for head, line in boxes
    )
    return f"<div class='flow' role='img' aria-label='{escape(said, quote=True)}'>{drawn}</div>"


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Draw a bar for each share, from its label, the share, and its text."""
    drawn = "".join(
        f"<text x='124' y='{24 + 30 * i}' text-anchor='end' font-size='13' fill='{INK}'>{escape(label)}</text>"
        f"<rect x='132' y='{10 + 30 * i}' width='220' height='18' fill='#edf2f7'/>"
        f"<rect x='132' y='{10 + 30 * i}' width='{220 * share:.1f}' height='18' fill='{BLUE}'/>"
        f"<text x='360' y='{24 + 30 * i}' font-size='13' fill='{INK}'>{escape(written)}</text>"
        for i, (label, share, written) in enumerate(rows)
    )
    said = "; ".join(f"{label} {written}" for label, _, written in rows)
    return f"<div class='bar'>{_svg(480, 10 + 30 * len(rows), said, drawn)}</div>"


def panels(effects: Sequence[tuple[str, Sequence[Interval], float | None]]) -> str:
    """Draw a panel with its own axis for each effect, from its title, its lines, and the value of no effect."""
    return f"<div class='panels'>{''.join(_panel(*effect) for effect in effects)}</div>"


def _panel(title: str, lines: Sequence[Interval], none: float | None) -> str:
    ends = [end for line in lines for end in (line.lower, line.upper)]
    low, high = min(ends), max(ends)
    margin = 0.04 * (high - low) or 1.0
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - low) / (high - low)

    bottom = 28 + 20 * len(lines)
    drawn = [f"<text x='4' y='16' font-size='13' font-weight='600' fill='{INK}'>{escape(title)}</text>"]
    if none is not None and low < none < high:
        drawn.append(f"<path d='M{place(none):.1f} 24 V{bottom}' stroke='{GREY}' stroke-dasharray='3 3' fill='none'/>")
    for i, line in enumerate(lines):
        y = 36 + 20 * i
        start, end = place(line.lower), place(line.upper)
        drawn.append(
            f"<text x='{_LEFT - 8}' y='{y + 4}' text-anchor='end' font-size='12' fill='{INK}'>{escape(line.label)}</text>"
        )
        if line.middle is None:
            drawn.append(
                f"<rect x='{start:.1f}' y='{y - 6}' width='{end - start:.1f}' height='12' rx='3' fill='{line.colour}' "
                "fill-opacity='.25'/>"
            )
        else:
            drawn.append(
                f"<path d='M{start:.1f} {y} H{end:.1f}' stroke='{line.colour}' stroke-width='2.5' fill='none'/>"
                f"<circle cx='{place(line.middle):.1f}' cy='{y}' r='4' fill='{line.colour}'/>"
            )
    drawn.append(f"<path d='M{_LEFT} {bottom} H{_WIDTH - _RIGHT}' stroke='{GREY}' fill='none'/>")
    for tick in _ticks(low, high):
        drawn.append(
            f"<path d='M{place(tick):.1f} {bottom} v4' stroke='{GREY}'/><text x='{place(tick):.1f}' y='{bottom + 16}' "
            f"text-anchor='middle' font-size='11' fill='{INK}'>{tick:.6g}</text>"
        )
    said = f"{title}: " + "; ".join(f"{line.label} {line.lower:.3g} to {line.upper:.3g}" for line in lines)
    return _svg(_WIDTH, bottom + 24, said, "".join(drawn))


def _ticks(low: float, high: float) -> list[float]:
    """Return three to five round numbers in this range, at distances of 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(high - low))
    for times in (5, 2.5, 2, 1, 0.5, 0.25, 0.2, 0.1):
        step = power * times
        first, last = int(np.ceil(low / step)), int(np.floor(high / step))
        if last - first >= 2:
            break
    return [float(k * step) for k in range(first, last + 1)]


def _svg(width: int, height: int, said: str, shapes: str) -> str:
    """Return a picture of shapes, with a description for screen readers."""
    label = escape(said, quote=True)
    return f"<svg viewBox='0 0 {width} {height}' role='img' aria-label='{label}'>{shapes}</svg>"
