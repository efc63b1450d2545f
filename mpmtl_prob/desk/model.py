"""Own model of a participant: fitted to its rows and the release, and saved to a file without any row."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, in_range
from mpmtl_prob.data.covariates import FAR
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.desk.message import Message
from mpmtl_prob.inference.owner.effects import OwnerEffects, effect_posteriors
from mpmtl_prob.inference.public.effects import SharedEffects, shared_effects
from mpmtl_prob.privacy import lattice
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.extent import WARMUP
from mpmtl_prob.schema.rows import StudyRows, read_rows
from mpmtl_prob.schema.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

_STUDY = "study"


@dataclass(frozen=True, eq=False, repr=False)
class OwnModel:
    """Posterior of one participant's coefficients, given its own rows and the release; for that participant only.

    Attributes:
        schema: schema of the study.
        own: the posterior, with one task.
        told: remarks for the data owner, in sentences.
    """

    schema: Schema
    own: OwnerEffects
    told: tuple[str, ...] = ()

    @property
    def participant(self) -> str:
        """Id of the participant."""
        return str(self.own.tasks[0])

    @property
    def shared(self) -> SharedEffects:
        """Posterior of average effects, which is public."""
        return self.own.shared

    def coefficients(self, probability: float = 0.9) -> pd.DataFrame:
        """Return a table of coefficients with the release and alone, as :meth:`OwnerEffects.coefficients`."""
        return self.own.coefficients(probability).xs(self.own.tasks[0])

    def alone(self, probability: float = 0.9) -> pd.DataFrame:
        """Return a table of coefficients from the participant's own rows alone, without any release."""
        return self.own.alone(probability).xs(self.own.tasks[0])

    def standing(self, probability: float = 0.9) -> pd.DataFrame:
        """Return a table of each coefficient's difference from the average of all, and the probability of being above it."""
        return self.own.standing(probability).xs(self.own.tasks[0])

    def average_effects(self, probability: float = 0.9) -> pd.DataFrame:
        """Return a table of average effects over all participants and their spread, which is public."""
        return self.shared.average_effects(probability)

    def covariate_slopes(self, probability: float = 0.9) -> pd.DataFrame:
        """Return a table of how average effects change with covariates of participants, which is public.

        Raises:
            ValueError: a study without covariates.
        """
        return self.shared.covariate_slopes(probability)

    def predict(self, frame: Any, probability: float = 0.9) -> pd.DataFrame:
        """Predict the target of rows; return ``mean``, ``lower`` and ``upper`` in the frame's index.

        For a binary target the predictions are probabilities of the second label, for counts those of the rows' exposure.
        Rows that the study drops, such as those with a missing column, have no prediction (NaN).

        Args:
            frame: rows, in any kind of data frame that narwhals reads; they need no target.
            probability: probability of central intervals, of targets and not of their averages.

        Raises:
            ValueError: missing columns, rows of another participant, or cells that the study refuses.
        """
        import pandas as pd

        fraction("probability", probability)
        rows = read_rows(self.schema, frame, self.participant, targets=False, newcomer=True)
        index = frame.index if isinstance(frame, pd.DataFrame) else pd.RangeIndex(len(frame))
        out = np.full((len(index), 3), np.nan)
        if len(rows.kept):
            prediction = self.own.predict(self._tasks(rows))
            out[rows.kept] = np.column_stack([prediction.means, *prediction.interval_of_rows(probability)])
        return pd.DataFrame(out, index=index, columns=["mean", "lower", "upper"])

    def _tasks(self, rows: StudyRows) -> TaskData:
        return replace(rows, participant=self.participant).tasks(self.schema)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a NetCDF file that only its owner can read (mode 0600).

        The file contains draws of the coefficients, alone and with the release, and of the residual standard deviation, the
        study's file, and the release with its posterior. It contains nothing per row (no outcome, column or likelihood)
        unless :func:`fit` was told to keep rows: then it contains outcomes, and the model's draws and likelihood of each.

        Coefficients can still reveal outcomes to somebody who knows the columns: with about as many rows as coefficients;
        with several times as many, if outcomes have few values, such as labels or whole days; and with any number of rows,
        the last outcome to somebody who knows all others.
        """
        tree = self.own.to_arviz()
        tree.attrs[_STUDY] = self.schema.to_json()
        replace(self.own, _tree=tree).save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OwnModel:
        """Read a model that :meth:`save` wrote. Raises ValueError for another kind of file."""
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
    covariates: Mapping[str, float] | None = None,
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
    """Fit a participant's own model to its rows and the release.

    Args:
        schema: schema of the study.
        frame: rows of this participant, in any kind of data frame that narwhals reads.
        release: a release of the same study.
        message: the message that it sent, which is taken out of the release so that its rows count once (leave-one-out).
        newcomer: True if it has sent none, and is not in the release.
        covariates: public numbers of a newcomer that the study's file does not name, such as ``{"beds": 300}``, where effects
            depend on them.
        participant: id of the participant; default the only one in the frame.
        likelihood: likelihood of numeric targets: "gaussian" or "student_t".
        chains: number of chains of the sampler.
        warmup: iterations of adaptation per chain.
        draws: draws per chain.
        seed: seed of the sampler.
        keep_rows: keep every outcome, with a posterior predictive draw and a log likelihood for every draw, in memory and
            in the saved file: ``own.to_arviz()`` then has them for ``az.loo`` and ``az.plot_ppc_dist``.
        progress_bar: show one.
        sampler: sampler of the public posterior, "nuts" or "weighted": as of :func:`mpmtl_prob.inference.shared_effects`.

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
    if covariates is not None and not newcomer:
        raise ValueError("covariates: expected none of a participant, whose numbers the study's file has, got some")
    rows = read_rows(schema, frame, participant, newcomer=newcomer)
    if message is not None and message.participant != rows.participant:
        raise ValueError(f"message: expected that of {rows.participant!r}, got that of {message.participant!r}")
    _check_there(schema, release, rows.participant, newcomer)
    if not len(rows.kept):
        raise ValueError(
            f"frame: expected at least one {schema.row} that the study keeps, got none; {'; '.join(rows.told)}"
        )
    of_newcomer = _covariates_of_newcomer(schema, rows.participant, covariates) if newcomer else None
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
        covariates=of_newcomer,
    )
    # Rows are removed, as the model should not contain any.
    return OwnModel(schema, replace(own, _tree=own.to_arviz(pointwise=keep_rows), _rows=None), rows.told)


def check_release(schema: Schema, release: Release) -> None:
    """Raise ValueError for a release of another study."""
    if release.study != schema.digest:
        got = "one of no study" if release.study is None else f"that of study {release.study[:12]}"
        raise ValueError(
            f"release: expected that of this study, {schema.digest[:12]}, got {got}; take the file that it was made with"
        )
    if release.effects != _layout_of(schema, release):
        raise ValueError(
            "release: expected the columns and units of the study's file, got others, although it names this study; ask "
            "whoever published it"
        )


def _layout_of(schema: Schema, release: Release) -> EffectsLayout | None:
    """Return the layout of the study's messages, of the participants who answered; None if these are not the study's."""
    if not schema.covariates:
        return schema.layout()
    if release.effects is None or release.effects.covariates is None:
        return None
    absent = [who for who in schema.participants if who not in release.effects.covariates.tasks]
    return schema.layout(absent) if schema.num_tasks - len(absent) == release.num_tasks else None


def _check_there(schema: Schema, release: Release, participant: str, newcomer: bool) -> None:
    """Raise ValueError for a newcomer whose message is in the release, or a message that is not, if the release says so."""
    if release.effects is None or release.effects.covariates is None:
        return
    there = participant in release.effects.covariates.tasks
    if there and newcomer:
        raise ValueError(
            f"newcomer: expected a {schema.task} that is not in the release, got {participant!r}, whose message is; give "
            "that message, or its rows count twice (--message)"
        )
    if not there and not newcomer:
        raise ValueError(
            f"message: expected one that is in the release, got that of {participant!r}, which is not; give newcomer=True "
            "(--newcomer)"
        )


def _covariates_of_newcomer(
    schema: Schema, participant: str, given: Mapping[str, float] | None
) -> dict[str, dict[str, float]] | None:
    """Return a newcomer's public numbers by its id: the study's file has those of its participants.

    Raises:
        ValueError: numbers that the study does not ask for, or none of a newcomer that its file does not name.
    """
    names = [covariate.name for covariate in schema.covariates]
    known = participant in schema.participants
    got = "none" if given is None else repr(list(given)) if isinstance(given, Mapping) else type(given).__name__
    if given is not None and (known or not names):
        why = f"has those of {participant!r}" if names else "has no covariates"
        raise ValueError(f"covariates: expected none, as the study's file {why}, got {got}")
    if not names:
        return None
    if given is None and known:
        return {participant: schema.covariates_of(participant)}
    first = schema.covariates[0]
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise ValueError(
            f"covariates: expected a number for each of {names}, as the study's file does not name {participant!r}, got "
            f"{got}; such as {{{first.name!r}: {first.centre:g}}} (--covariate {first.name}={first.centre:g})"
        )
    for each in schema.covariates:
        reach = FAR * each.scale
        in_range(f"covariates: {each.name}", given[each.name], each.centre - reach, each.centre + reach)
    return {participant: dict(given)}


def _sent(message: Message, release: Release) -> FloatArray:
    """Return the message as it is in the release, (D, 1)."""
    assert release.lattice is not None
    return lattice.sent(message.vector[:, None], release.mechanisms[0].clip, release.lattice)
