"""A participant's own model: from its rows, the study's file and the release, and back to a file without any row."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.desk.message import Message
from mpmtl_prob.inference.owner.effects import OwnerEffects, effect_posteriors
from mpmtl_prob.inference.public.effects import SharedEffects, shared_effects
from mpmtl_prob.privacy import lattice
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.nuts import WARMUP
from mpmtl_prob.schema.rows import StudyRows, read_rows
from mpmtl_prob.schema.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

_STUDY = "study"


@dataclass(frozen=True, eq=False, repr=False)
class OwnModel:
    """One participant's coefficients, by its own rows and the release. It is for that participant alone.

    Attributes:
        schema: of the study.
        own: the posterior, of one task.
        told: what whoever holds the rows should know, in sentences.
    """

    schema: Schema
    own: OwnerEffects
    told: tuple[str, ...] = ()

    @property
    def participant(self) -> str:
        """Whose it is."""
        return str(self.own.tasks[0])

    @property
    def shared(self) -> SharedEffects:
        """The posterior of average effects, which is public."""
        return self.own.shared

    def coefficients(self, probability: float = 0.9) -> pd.DataFrame:
        """Table of its coefficients, a row each, with the release and alone: as of :meth:`OwnerEffects.coefficients`."""
        return self.own.coefficients(probability).xs(self.own.tasks[0])

    def alone(self, probability: float = 0.9) -> pd.DataFrame:
        """Table of its coefficients by its own rows alone, without any release."""
        return self.own.alone(probability).xs(self.own.tasks[0])

    def standing(self, probability: float = 0.9) -> pd.DataFrame:
        """Table of how far its coefficients are above the average of all, and with what probability."""
        return self.own.standing(probability).xs(self.own.tasks[0])

    def average_effects(self, probability: float = 0.9) -> pd.DataFrame:
        """Table of average effects over all participants and their spread, which is public."""
        return self.shared.average_effects(probability)

    def predict(self, frame: Any, probability: float = 0.9) -> pd.DataFrame:
        """Table of predicted targets of rows without one, in the frame's index: ``mean``, ``lower`` and ``upper``.

        Of a binary target they are probabilities of the second label, of counts those of the rows' exposure.
        Rows that the study drops, such as those without a column that it needs, have none (NaN).

        Args:
            frame: of any kind that narwhals reads.
            probability: of central intervals, of targets and not of their averages.

        Raises:
            ValueError: columns that are not there, rows of another participant, or cells that the study refuses.
        """
        import pandas as pd

        fraction("probability", probability)
        rows = read_rows(self.schema, frame, self.participant, targets=False, newcomer=True)
        index = frame.index if isinstance(frame, pd.DataFrame) else pd.RangeIndex(len(frame))
        out = np.full((len(index), 3), np.nan)
        if len(rows.kept):
            found = self.own.predict(self._tasks(rows))
            out[rows.kept] = np.column_stack([found.means, *found.interval_of_rows(probability)])
        return pd.DataFrame(out, index=index, columns=["mean", "lower", "upper"])

    def _tasks(self, rows: StudyRows) -> TaskData:
        return replace(rows, participant=self.participant).tasks(self.schema)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a NetCDF file for its owner alone (mode 0600).

        In it are draws of the coefficients, alone and with the release, and of the residual deviation, the study's file,
        and the release with its posterior. Nothing in it is kept per row, no outcome, no column, no likelihood, unless
        :func:`fit` was told to keep rows: then outcomes are in it, and what the model says of each. With about as
        many rows as coefficients, the coefficients can reveal outcomes to somebody who knows the columns; outcomes of few
        kinds, such as labels or whole days, with several times as many, as few cases are left to try; and with any number
        of rows the last outcome to somebody who knows the columns and all others.
        """
        tree = self.own.to_arviz()
        tree.attrs[_STUDY] = self.schema.to_json()
        replace(self.own, _tree=tree).save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OwnModel:
        """Read a model that :meth:`save` wrote. Raises ValueError for a file that holds none."""
        own = OwnerEffects.load(path)
        study = own.to_arviz().attrs.get(_STUDY)
        if study is None:
            raise ValueError(
                f"path: expected a model of a study, as mpmtl-prob fit --study writes it, got {os.fspath(path)!r}"
            )
        return cls(Schema.from_dict(json.loads(study), check_promise=False), own)

    def __repr__(self) -> str:
        return f"OwnModel({self.participant!r}, {len(self.own.features)} coefficients)\n  private to this {self.schema.task}"


def fit(
    schema: Schema,
    frame: Any,
    release: Release,
    message: Message | None = None,
    *,
    newcomer: bool = False,
    participant: str | None = None,
    likelihood: str | None = None,
    chains: int = 4,
    warmup: int = WARMUP,
    draws: int = 300,
    seed: int = 0,
    keep_rows: bool = False,
    progress_bar: bool = True,
    sampler: str = "nuts",
) -> OwnModel:
    """Return a participant's own model, of its rows and the release.

    Args:
        schema: of the study.
        frame: rows of this participant, of any kind that narwhals reads.
        release: of the same study.
        message: what it sent, which is taken out of the release so that its rows count once.
        newcomer: it has sent none, and is not in the release.
        participant: whose rows; default the only one in the frame.
        likelihood: of targets that are numbers: "gaussian" or "student_t".
        chains: of the sampler.
        warmup: iterations of adaptation per chain.
        draws: per chain.
        seed: of the sampler.
        keep_rows: the model keeps every outcome, a draw anew and the log likelihood of it for every draw, in memory and in
            the file that it is saved to: ``own.to_arviz()`` then has them for ``az.loo`` and ``az.plot_ppc_dist``.
        progress_bar: show one.
        sampler: of the public posterior, "nuts" or "weighted": as of :func:`mpmtl_prob.inference.shared_effects`.

    Raises:
        ValueError: a release or a message of another study, neither a message nor a newcomer, or both, or cells that the
            study refuses.
    """
    check_release(schema, release)
    if (message is None) != newcomer:
        raise ValueError(
            f"message: expected the one that this {schema.task} has sent, or newcomer=True of one that has sent none "
            f"(--message FILE or --newcomer), got {'both' if newcomer else 'neither'}"
        )
    rows = read_rows(schema, frame, participant, newcomer=newcomer)
    if message is not None and message.participant != rows.participant:
        raise ValueError(f"message: expected that of {rows.participant!r}, got that of {message.participant!r}")
    if not len(rows.kept):
        raise ValueError(
            f"frame: expected at least one {schema.row} that the study keeps, got none; {'; '.join(rows.told)}"
        )
    shared = shared_effects(
        release, chains=chains, warmup=warmup, draws=draws, seed=seed, progress_bar=progress_bar, sampler=sampler
    )
    own = effect_posteriors(
        rows.tasks(schema),
        shared,
        likelihood=likelihood,
        leave_one_out="not_in_release" if message is None else "exact",
        seed=seed,
        sent=None if message is None else _sent(message, release),
    )
    # no row stays with a model that is to be without any
    return OwnModel(schema, replace(own, _tree=own.to_arviz(pointwise=keep_rows), _rows=None), rows.told)


def check_release(schema: Schema, release: Release) -> None:
    """Raise ValueError for a release of another study."""
    if release.study != schema.digest:
        got = "one of no study" if release.study is None else f"that of study {release.study[:12]}"
        raise ValueError(
            f"release: expected that of this study, {schema.digest[:12]}, got {got}; take the file that it was made with"
        )
    if release.effects != schema.spec.layout(schema.coefficients):
        raise ValueError(
            "release: expected the columns and units of the study's file, got others, whatever study it says it is of; ask "
            "whoever published it"
        )


def _sent(message: Message, release: Release) -> FloatArray:
    """The message as it is in the release, (D, 1)."""
    assert release.lattice is not None
    return lattice.sent(message.vector[:, None], release.mechanisms[0].clip, release.lattice)
