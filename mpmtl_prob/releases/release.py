"""Release: the published second moments, the law of their noise, the guarantee, and the file that holds them."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.files import write_netcdf
from mpmtl_prob._util.former import FormerName, former_names
from mpmtl_prob._util.html import card
from mpmtl_prob.privacy.accounting.curves import MembershipOdds
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.privacy.mechanisms import MatrixMechanism, Mechanism, write_mechanism
from mpmtl_prob.releases import files, signatures
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.releases.spec import check_laws, check_layout

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Release: the perturbed second moments of T rounds, which are public, and the law of their noise.

    Attributes:
        sigma: Sigma^(1:T), (T, d, d), read-only.
        mechanisms: the noise law of each round; its ``clip`` is K.
        num_tasks: number of tasks m.
        features: names of the messages' coordinates, d of them: the features, or for messages of effects those of
            ``effects``.
        guarantee: the claimed and the proved guarantee.
        message: "direction" (every column of W has unit length or is zero), "clip" (length at most K) or "effects" (unit
            length, for a mixed model: :func:`mpmtl_prob.inference.shared_effects`).
        scaling: the coordinates of the messages: "pareto" or "unit_variance" (every owner scaled its features by its own
            rows), or "none".
        library_version: version of the code that made it.
        composed_with: laws of what was also bought for this release and is in its guarantee, such as the clip norm.
        lattice: h, the step of the messages' grid; Sigma lies on the grid of step h^2. None if noise was drawn in doubles.
        effects: the layout of messages of effects; None for other messages.
        study: the hash of the study's schema, :attr:`mpmtl_prob.Schema.digest`; None if there is none.

    Raises:
        ValueError: Sigma that is not finite and symmetric, or not positive definite though its noise is; shapes that
            disagree.
    """

    sigma: FloatArray
    mechanisms: tuple[MatrixMechanism, ...]
    num_tasks: int
    features: tuple[Hashable, ...]
    guarantee: Guarantee
    message: str
    scaling: str
    library_version: str
    composed_with: tuple[Mechanism, ...] = ()
    lattice: float | None = None
    effects: EffectsLayout | None = None
    study: str | None = None

    besides = FormerName("composed_with")

    def __post_init__(self) -> None:
        d = len(self.features)
        sigma = np.array(self.sigma, dtype=np.float64)
        if sigma.shape != (len(self.mechanisms), d, d):
            raise ValueError(f"sigma: expected shape {(len(self.mechanisms), d, d)} (round, feature, feature), "
                             f"got {sigma.shape}")  # fmt: skip
        if not np.all(np.isfinite(sigma)):
            raise ValueError("sigma: expected finite numbers")
        if not np.allclose(sigma, np.swapaxes(sigma, 1, 2), rtol=1e-10, atol=0):
            raise ValueError("sigma: expected symmetric matrices")
        definite = np.array([mechanism.positive_definite for mechanism in self.mechanisms])
        if np.any(definite) and (smallest := np.linalg.eigvalsh(sigma[definite])[:, 0].min()) <= 0:
            raise ValueError(f"sigma: expected positive definite matrices, got an eigenvalue {smallest:.3g}")
        check_laws(self.mechanisms, d, self.message)
        check_layout(self.message, self.effects, self.features, len(self.mechanisms), self.num_tasks)
        sigma.setflags(write=False)
        object.__setattr__(self, "sigma", sigma)

    def membership_odds(self, prior: float = 0.5) -> MembershipOdds:
        """Compute the odds of the strongest membership inference attack on a task before and after; prints as a sentence.

        Args:
            prior: the attacker's probability before the release, in (0, 1).

        Raises:
            ValueError: a prior outside (0, 1), or a release without proved guarantee.
        """
        return self.guarantee.membership_odds(prior)

    def to_dp_event(self) -> Any:
        """Return the release as a ``DpEvent`` of dp-accounting; see :meth:`Guarantee.to_dp_event` for Wishart noise.

        >>> train = mp.datasets.synthetic_low_rank(num_tasks=40, num_features=3, rows=10).train
        >>> release = mp.release(train, epsilon=1.0, mechanism="gaussian", delta=1e-3)
        >>> from dp_accounting.pld import PLDAccountant
        >>> round(PLDAccountant().compose(release.to_dp_event()).get_epsilon(1e-3), 2)
        1.0
        """
        return self.guarantee.to_dp_event()

    def explain(self) -> str:
        """Explain in words what was published, what is promised, what participants can be told, and what is not covered."""
        told = f"{self._what()}."
        if self.effects is not None and self.effects.covariates is not None:
            names = ", ".join(map(str, self.effects.covariates.names))
            told += f" With it go the names of the tasks and their covariates ({names}), which are public and not protected."
        return f"{told}\n\n{self.guarantee.explain()}"

    @property
    def rounds(self) -> int:
        """Number of rounds, T."""
        return len(self.mechanisms)

    @property
    def num_features(self) -> int:
        """Number of coordinates of a message, d."""
        return len(self.features)

    def to_xarray(self) -> xr.Dataset:
        """Convert to a data set with dims (round, feature, feature_other); the rest is in the attribute ``release``."""
        import xarray as xr  # with pandas, nearly a second to import

        meta = {
            "mechanisms": [write_mechanism(mechanism) for mechanism in self.mechanisms],
            "besides": [write_mechanism(mechanism) for mechanism in self.composed_with],
            "num_tasks": self.num_tasks,
            "features": list(self.features),
            "guarantee": self.guarantee.to_dict(),
            "message": self.message,
            "scaling": files.SCALING_IN_FILES.get(self.scaling, self.scaling),
            "library_version": self.library_version,
            "lattice": self.lattice,
        }
        if self.effects is not None:
            meta["effects"] = self.effects.to_dict()
        if self.study is not None:
            meta["study"] = self.study
        names = [str(feature) for feature in self.features]
        return xr.Dataset(
            {"sigma": (("round", "feature", "feature_other"), self.sigma)},
            coords={"round": np.arange(1, self.rounds + 1), "feature": names, "feature_other": names},
            attrs={"release": json.dumps(meta)},
        )

    def save(self, path: str | os.PathLike[str], *, key: bytes | None = None) -> None:
        """Write the release to a NetCDF file, readable by its owner only (mode 0600) if nothing is proved of it.

        Args:
            path: path of the file; an existing one is replaced only when the new one is complete.
            key: secret key of at least 16 bytes that signs the whole content (HMAC-SHA256), for readers who share the key.

        Raises:
            ValueError: an invalid key.
        """
        data = self.to_xarray()
        write_netcdf(data if key is None else signatures.sign(data, key), path, private=self.guarantee.proved is None)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, key: bytes | None = None) -> Release:
        """Read a release that :meth:`save` wrote.

        The guarantee is computed anew from the file's own numbers, and what they do not support is not called proved. That
        Sigma came from its noise laws and the messages, and that the noise was fresh, depends on who wrote the file: with a
        ``key`` the file must be signed by it.

        Raises:
            ValueError: a file that does not hold a release, or an unknown law; with ``key``, one that it did not sign.
        """
        data = files.read(path)
        if key is not None:
            signatures.check(data, key, path)
        try:
            return cls.from_xarray(data)
        except ValueError as error:
            raise ValueError(f"path: {os.fspath(path)!r} holds no release of mpmtl_prob: {error}") from error

    @classmethod
    def from_xarray(cls, data: xr.Dataset) -> Release:
        """Restore a release from what :meth:`to_xarray` returns, as :meth:`load`. Raises ValueError for other data."""
        return cls(**files.fields(data))

    def __repr__(self) -> str:
        return f"Release({self._what()})\n  {self.guarantee}"

    def _what(self) -> str:
        rounds = "one round" if self.rounds == 1 else f"{self.rounds} rounds"
        return f"{self.num_features} x {self.num_features} second moment of {self.num_tasks} tasks, {rounds}"

    def _repr_html_(self) -> str:
        length = f"length at most {self.mechanisms[0].clip:.3g}" if self.message == "clip" else "unit length"
        facts = {
            "published": f"{self.num_features} x {self.num_features} second moment of {self.num_tasks} tasks' vectors",
            "rounds": self.rounds,
            "vectors": length,
            "noise": ", ".join(sorted({law.kind for law in self.mechanisms})),
        }
        return card("Release", facts | self.guarantee.facts(), self.guarantee.reason)


__getattr__ = former_names(
    __name__,
    {
        "arrived": "mpmtl_prob.releases.publish:from_noisy_sum",
        "perturb": "mpmtl_prob.releases.publish:publish_rounds",
        "publish": "mpmtl_prob.releases.publish:publish",
        "release": "mpmtl_prob.releases.publish:release",
    },
)
