"""Covariates of tasks in a study's file: public numbers, such as a hospital's beds, with which average effects may differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpmtl_prob.data.cells import label_text
from mpmtl_prob.schema.sections import SETTLED, Section

_SHOWN = 5


@dataclass(frozen=True)
class TaskCovariate:
    """Covariate of tasks: its unit, public centre and scale, and its value of every participant.

    Attributes:
        name: its name.
        unit: its unit, such as "beds"; for people.
        centre: a usual value, at which average effects are told.
        scale: a usual distance from the centre.
        values: the value of every participant, by id.
    """

    name: str
    unit: str
    centre: float
    scale: float
    values: Mapping[str, float]

    @property
    def at_centre(self) -> str:
        """The covariate at its centre, in words, such as "beds 300"; with its unit where it is another word."""
        return f"{self.name} {self.centre:g}" + (f" {self.unit}" if self.unit not in ("", self.name) else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the covariate in types that JSON can hold."""
        return {
            "name": self.name,
            "unit": self.unit,
            "centre": self.centre,
            "scale": self.scale,
            "values": dict(sorted(self.values.items())),
        }


def task_covariates(said: object, participants: Sequence[str], taken: Collection[str]) -> tuple[TaskCovariate, ...]:
    """Parse the sections [covariates.beds], with a value of every participant each.

    Args:
        said: the sections by name.
        participants: ids of the study's participants.
        taken: names of the table's columns, which covariates may not have.

    Raises:
        ValueError: a study that does not list its participants, a participant without a value, or a value of another; or a
            name that is empty, that tables would read differently, or that a column has.
    """
    section = Section("covariates", said)
    names = [name for name in section if name != SETTLED]
    if names and not participants:
        raise ValueError(
            "[study]: participants: expected the ids of all, of whom [covariates] has public numbers, got none; list them"
        )
    for name in names:
        if not name or name != label_text(name):
            raise ValueError(
                f"[covariates]: {name!r}: expected a name without blanks around it, in Unicode's normal form C, got another"
            )
        if name in taken:
            raise ValueError(f"[covariates.{name}]: expected another name than a column's, got {name!r} twice")
    return tuple(_covariate(name, section.take(name), participants) for name in names)


def _covariate(name: str, said: object, participants: Sequence[str]) -> TaskCovariate:
    section = Section(f"covariates.{name}", said)
    of_participants = Section(f"covariates.{name}.values", section.take("values", {}))
    values: dict[str, float] = {}
    for who in of_participants:
        if (known := label_text(who)) not in participants:
            raise of_participants.error(who, "expected ids of the study's participants")
        if known in values:
            raise of_participants.error(who, "expected every participant once, got it twice")
        values[known] = of_participants.number(who)
    if missing := [who for who in participants if who not in values]:
        more = f" and {len(missing) - _SHOWN} more" if missing[_SHOWN:] else ""
        raise section.error(
            "values",
            f"expected a number of every participant, in [covariates.{name}.values], got none of "
            f"{', '.join(missing[:_SHOWN])}{more}",
        )
    covariate = TaskCovariate(
        name,
        section.text("unit") if "unit" in section else "",
        section.number("centre", what="a usual value, such as the average of what is public"),
        section.positive("scale", what="a usual distance from the centre, above 0"),
        {who: values[who] for who in participants},
    )
    section.finish([SETTLED])
    return covariate
