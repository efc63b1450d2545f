"""Schema of a study, read from one public file: columns, target, participants, and privacy budget."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from mpmtl_prob._util.files import each_once
from mpmtl_prob._util.words import plural
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.reference import Reference
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.releases.spec import ReleaseSpec, Terms
from mpmtl_prob.schema.columns import EMPTY_CELLS, Number, column_of
from mpmtl_prob.schema.covariates import TaskCovariate, task_covariates
from mpmtl_prob.schema.outcome import Outcome
from mpmtl_prob.schema.rows import task_data
from mpmtl_prob.schema.sections import SETTLED, Section, check_texts
from mpmtl_prob.schema.table import StudyTable

#: With fewer tasks delta has no default, as the usual one, 1 / (m log m), would be a weak promise.
_FEW_TASKS = 30
#: Largest number of texts that mark an empty cell, as every cell is compared with each.
_MOST_EMPTY = 100
_SECTIONS = ("study", "target", "columns", "release", "covariates", "keys")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Schema(StudyTable):
    """Schema of a study: the public agreement on columns, target, units, participants, and privacy budget.

    It is one public file, and all columns of the model follow from it alone, so that every site builds the same columns,
    whatever levels or types its own rows have. Read a schema with :meth:`read`; ``mpmtl-prob schema`` writes a draft.

    Attributes:
        num_tasks: number of tasks.
        promise: the privacy budget: epsilon, delta, adjacency and mechanism.
        covariates: covariates of tasks, with their public values.
        keys: public keys by holder: "curator", and "participant H01" for participants.
        title: title of the study.
        unsettled: sections that come from a draft, and on which nobody has agreed yet.
        said: the sections as they were read, which :meth:`from_dict` accepts.

    Raises:
        ValueError: an invalid column. :meth:`read` and :meth:`from_dict` also refuse a privacy budget that cannot be met.
    """

    num_tasks: int
    promise: Mapping[str, Any]
    covariates: tuple[TaskCovariate, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    unsettled: tuple[str, ...] = ()
    said: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, check_promise: bool = True) -> Schema:
        """Read a study's file, TOML or, where its name ends in .json, JSON.

        Args:
            path: of the file.
            check_promise: work out whether the promise can be kept, which takes a second; without, whoever has a release of
                this very file knows that it could.

        Raises:
            ValueError: an invalid file; the error names the section, the key, and what was expected.
            FileNotFoundError: the file does not exist.
        """
        place = Path(path)
        try:
            text = place.read_text(encoding="utf-8")
            if place.suffix == ".json":
                said = json.loads(text, object_pairs_hook=each_once, parse_constant=_no_number)
            else:
                said = tomllib.loads(text)
            return cls.from_dict(said, check_promise=check_promise)
        except UnicodeDecodeError:
            raise ValueError(
                f"{os.fspath(path)!r} is no file of a study: expected text in UTF-8, got other bytes"
            ) from None
        except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{os.fspath(path)!r} is no file of a study: {error}") from None
        except RecursionError:
            raise ValueError(f"{os.fspath(path)!r} is no file of a study: it is nested too deeply") from None
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)!r}: {error}") from None

    @classmethod
    def from_dict(cls, said: Mapping[str, Any], *, check_promise: bool = True) -> Schema:
        """Make a schema from a file's sections, as :meth:`read` does. Raises ValueError for invalid ones."""
        if not isinstance(said, Mapping):
            raise ValueError(f"expected the sections {', '.join(_SECTIONS)}, got {type(said).__name__}")
        check_texts(said)
        if others := [name for name in said if name not in _SECTIONS]:
            raise ValueError(f"expected the sections {', '.join(_SECTIONS)}, got [{others[0]}]")
        if missing := [name for name in ("study", "target", "columns", "release") if name not in said]:
            raise ValueError(f"expected the sections {', '.join(_SECTIONS[:4])}, got no [{missing[0]}]")
        columns = Section("columns", said["columns"])
        names = [name for name in said["columns"] if name != SETTLED]
        if not names:
            raise ValueError("[columns]: expected at least one, such as [columns.age], got none")
        study = Section("study", said["study"])
        num_tasks, participants = _who(study)
        keys = _keys(said.get("keys", {}), participants)
        schema = cls(
            task=study.text("task", what="the column that says whose a row is, such as 'hospital'"),
            row=study.text("row", "row"),
            num_tasks=num_tasks,
            participants=participants,
            target=Outcome.of(said["target"]),
            columns={name: column_of(name, columns.take(name)) for name in names},
            promise=_promise(Section("release", said["release"]), num_tasks),
            covariates=task_covariates(said.get("covariates", {}), participants, _columns_of(said)),
            formula=study.text("formula") if "formula" in study else None,
            person=study.text("person") if "person" in study else None,
            empty=_empty(study),
            keys=keys,
            title=study.text("title") if "title" in study else "",
            unsettled=_unsettled(said),
            said=said,
        )
        study.finish([SETTLED])
        if check_promise:
            schema.terms()  # raises for an invalid file
        else:
            schema.layout()
        return schema

    @cached_property
    def reference(self) -> Reference:
        """Public centres and scales of the model's columns and of the target."""
        features: dict[Hashable, tuple[float, float]] = {
            column.name: (column.centre, column.scale) for column in self.design.built
        }
        effects: dict[Hashable, float] = {
            name: column.effect
            for name, column in self.columns.items()
            if isinstance(column, Number) and column.effect is not None
        }
        if others := [name for name in effects if name not in features]:
            raise ValueError(
                f"[columns.{others[0]}]: effect: expected none, as the formula has no {others[0]} by itself"
            )
        of_tasks: dict[Hashable, tuple[float, float]] = {
            covariate.name: (covariate.centre, covariate.scale) for covariate in self.covariates
        }
        if self.target.kind != "number":
            return Reference(
                features, effects=effects, outcome=self.target.kind, baseline=self.target.baseline, covariates=of_tasks
            )
        values = self.target.values
        assert isinstance(values, Number)
        return Reference(features, (values.centre, values.scale), effects, covariates=of_tasks)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Names of the effects, with the intercept last."""
        return (*(column.name for column in self.design.built), NAME)

    @cached_property
    def spec(self) -> ReleaseSpec:
        """The specification of the release."""
        values = {who: self.covariates_of(who) for who in self.participants} if self.covariates else None
        return ReleaseSpec(**self.promise, reference=self.reference, covariates=values)

    def covariates_of(self, participant: str) -> dict[str, float]:
        """Return the public numbers of a participant, by covariate."""
        return {covariate.name: covariate.values[participant] for covariate in self.covariates}

    def terms(self, without: Sequence[str] = ()) -> Terms:
        """Return the terms of the release, without the tasks that did not answer.

        Args:
            without: their ids.

        Raises:
            ValueError: fewer than two tasks are left.
        """
        if not without:
            return self._whole_terms
        absent = self._absent(without)
        return self._spec_without(absent).terms(self.num_tasks - len(absent), self.coefficients)

    def layout(self, without: Sequence[str] = ()) -> EffectsLayout:
        """Return the layout of the messages in the release, with arguments and errors as :meth:`terms`."""
        return self._spec_without(self._absent(without)).layout(self.coefficients)

    @cached_property
    def _whole_terms(self) -> Terms:
        return self.spec.terms(self.num_tasks, self.coefficients)

    def _absent(self, without: Sequence[str]) -> set[str]:
        """Return the ids of the tasks that did not answer, each once."""
        if isinstance(without, str):
            raise ValueError(f"without: expected a list of ids, got a text; give [{without!r}]")
        absent = set(map(label_text, without))
        if (left := self.num_tasks - len(absent)) < 2:
            raise ValueError(f"without: expected at least two {plural(self.task)} to be left, got {left}")
        return absent

    def _spec_without(self, absent: Collection[str]) -> ReleaseSpec:
        return self.spec.among([who for who in self.participants if who not in absent])

    def tasks(self, frame: Any, participant: str | Sequence[str] | None = None) -> TaskData:
        """Convert the rows of a data frame for the study's model, with one task per participant.

        Args:
            frame: a data frame of pandas, polars, pyarrow or another kind that narwhals reads.
            participant: one or several participants; default all.

        Raises:
            ValueError: missing columns; cells that the study does not allow (the error says which, how many, and what to do);
                or a participant without rows.
        """
        return task_data(self, frame, participant)

    def to_dict(self) -> dict[str, Any]:
        """Return the file's content with defaults, without the title and the marks of what is settled."""
        return {
            "task": self.task,
            "row": self.row,
            "num_tasks": self.num_tasks,
            "participants": list(self.participants),
            "target": self.target.to_dict(),
            "columns": [column.to_dict() for column in self.columns.values()],
            "promise": dict(self.promise),
            **({"covariates": [covariate.to_dict() for covariate in self.covariates]} if self.covariates else {}),
            "formula": None if self.formula is None else _one_line(self.formula),
            "person": self.person,
            "empty": list(self.empty),
            "keys": dict(sorted(self.keys.items())),
        }

    @cached_property
    def digest(self) -> str:
        """Hash of the file's content, 64 hexadecimal digits, independent of comments, line ends and the order of keys."""
        text = json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> str:
        """Return the file's sections as JSON, from which :meth:`from_dict` makes the same study."""
        return json.dumps(self.said, default=str)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.digest == other.digest

    def __repr__(self) -> str:
        promise = ", ".join(f"{name} = {value}" for name, value in self.promise.items() if value is not None)
        return (
            f"Schema({self.num_tasks} {plural(self.task)}, {self.target.column} by {len(self.coefficients)} coefficients, "
            f"{promise})\n"
            f"  study {self.digest[:12]}"
        )


def _columns_of(said: Mapping[str, Any]) -> set[str]:
    """Return the names of a table's columns, with those of its tasks, persons, targets and exposures."""
    roles = [said["study"].get("task"), said["study"].get("person")]
    roles += [said["target"].get("column"), said["target"].get("exposure")]
    return {name for name in (*said["columns"], *roles) if isinstance(name, str)}


def _who(study: Section) -> tuple[int, tuple[str, ...]]:
    """Return the number of tasks, and their ids."""
    if "participants" in study:
        ids = study.names("participants", least=2)
        if "tasks" in study and study.whole("tasks") != len(ids):
            raise study.error("tasks", f"expected {len(ids)}, as there are participants, got {study.take('tasks')}")
        return len(ids), ids
    return study.whole("tasks", what="how many tasks there are, or the ids of all participants"), ()


def _one_line(formula: str) -> str:
    """Join a formula's lines. Blanks inside a line are kept, as they may be part of a column's name."""
    return " ".join(line.strip() for line in formula.splitlines() if line.strip())


def _empty(study: Section) -> tuple[str, ...]:
    texts = study.take("missing_values", list(EMPTY_CELLS))
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise study.error("missing_values", f"expected a list of texts, got {texts!r}")
    if len(texts) > _MOST_EMPTY:
        raise study.error("missing_values", f"expected at most {_MOST_EMPTY} texts, got {len(texts)}")
    return ("", *(text.strip() for text in texts if text.strip()))


def _promise(section: Section, num_tasks: int) -> dict[str, Any]:
    """Parse epsilon, delta, adjacency and mechanism."""
    delta = section.positive("delta") if "delta" in section else None
    if delta is None and num_tasks < _FEW_TASKS:
        raise section.error(
            "delta",
            f"expected it with fewer than {_FEW_TASKS} tasks, as the usual 1 / (m log m) promises little there, got none; "
            "add it, such as .01, or .001",
        )
    promise = {
        "epsilon": section.positive("epsilon", what="a budget, such as 1.0"),
        "delta": delta,
        "adjacency": section.choice("adjacency", "replace", ("replace", "zero_out")),
        "mechanism": section.choice("mechanism", "wishart", ("wishart", "gaussian")),
    }
    section.finish([SETTLED])
    return promise


def _keys(said: object, participants: tuple[str, ...]) -> dict[str, str]:
    """Parse the public keys of the curator, and of participants by their ids."""
    section = Section("keys", said)
    keys = {"curator": section.text("curator")} if "curator" in section else {}
    of_sites = Section("keys.participants", section.take("participants", {}))
    for name in dict(section.take("participants", {})):
        if label_text(name) not in participants:
            raise of_sites.error(name, "expected ids of the study's participants")
        keys[f"participant {label_text(name)}"] = of_sites.text(name)
    if keys.keys() - {"curator"} and len(keys.keys() - {"curator"}) < len(participants):
        raise ValueError("[keys.participants]: expected a key of every participant, or of none, got some")
    section.finish([SETTLED])
    return keys


def _unsettled(said: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sections with settled = false."""
    sections = [(name, said[name]) for name in _SECTIONS if name in said]
    for several in ("columns", "covariates"):
        within = [(name, values) for name, values in said.get(several, {}).items() if isinstance(values, Mapping)]
        sections += [(f"{several}.{name}", values) for name, values in within]
    unsettled = []
    for name, values in sections:
        settled = values.get(SETTLED, True) if isinstance(values, Mapping) else True
        if not isinstance(settled, bool):
            raise ValueError(f"[{name}]: {SETTLED}: expected true or false, got {settled!r}")
        unsettled += [] if settled else [f"[{name}]"]
    return tuple(unsettled)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"expected finite numbers, got {text}")
