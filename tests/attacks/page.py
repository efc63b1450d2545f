"""Write the table of docs/security_testing.md from the counts of the attacks.

    python tests/attacks/page.py

The counts are docs/results/attacks.json, by `make attack`, and docs/results/attacks_0_3_0.json, of attacks on version 0.3.0.
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security_testing.md"
NOW = ROOT / "docs" / "results" / "attacks.json"
BEFORE = ROOT / "docs" / "results" / "attacks_0_3_0.json"
START, END = "<!-- the table, by tests/attacks/page.py -->\n", "<!-- end of the table -->\n"


def table() -> str:
    """Return the table: every way of every class, cases tried and fallen now, and against version 0.3.0."""
    counts_now, counts_before = (json.loads(path.read_text(encoding="utf-8")) for path in (NOW, BEFORE))
    now, before = counts_now["classes"], counts_before["classes"]
    lines = []
    for name, result in now.items():
        lines += [f"\n### {name.replace('_', ' ').capitalize()}\n", result["title"] + "\n"]
        lines += ["| what would be wrong | tried | fell | in 0.3.0, tried | fell |", "|---|--:|--:|--:|--:|"]
        for way, count in result["ways"].items():
            then = before.get(name, {"ways": {}})["ways"].get(way, {"tried": "-", "fell": "-"})
            lines.append(f"| {way} | {count['tried']} | {count['fell']} | {then['tried']} | {then['fell']} |")
    counts = [count for result in now.values() for count in result["ways"].values()]
    fallen = sum(count["fell"] > 0 for result in before.values() for count in result["ways"].values())
    total = sum(count["tried"] for count in counts)
    minutes = sum(result["seconds"] for result in now.values()) / 60
    first = (
        f"{total:,} cases in {len(counts)} ways, in {minutes:.0f} minutes: {sum(count['fell'] for count in counts)} fell. "
        f"Against version 0.3.0, {fallen} of the ways find something. `make attack` tries all cases; these are those of "
        f"`--effort {counts_now['effort']:g}`, and of `--effort {counts_before['effort']:g}` against 0.3.0.\n"
    )
    return "\n".join([first, *lines]) + "\n"


def page(text: str) -> str:
    """Return the page's text with the table of today."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return before + START + table() + "\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
