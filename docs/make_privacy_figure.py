"""Draws docs/support_gap.png: ``python docs/make_privacy_figure.py``."""

from pathlib import Path

import matplotlib
import numpy as np

from mpmtl_prob.privacy import Bound, PaperWishart, Wishart, audit, calibrate

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DELTA, D, TRIALS = 1e-3, 5, 20_000
THERE, ABSENT = "#1b6ca8", "#c8472b"


def smallest_eigenvalues(law: Wishart, rng: np.random.Generator) -> list[np.ndarray]:
    """Of Sigma - A in units of the noise scale, with the task and without it."""
    w = np.eye(D)[0]
    noise = law.sample(rng, np.zeros((TRIALS, D, D)))
    return [np.linalg.eigvalsh(noise - absent * np.outer(w, w))[:, 0] / law.scale for absent in (0, 1)]


def main() -> None:
    rng = np.random.default_rng(0)
    laws = {"the papers' noise, eps = 1": PaperWishart(D, 1.0)}
    laws["calibrated noise, eps = 1, delta = 0.001"] = calibrate(1.0, DELTA, D, adjacency="zero_out")
    figure, axes = plt.subplots(1, 3, figsize=(12.6, 3.8), layout="constrained")
    for ax, (name, law) in zip(axes, laws.items(), strict=False):
        there, absent = smallest_eigenvalues(law, rng)
        bins = np.linspace(min(absent.min(), there.min()), np.quantile(there, 0.999), 90)
        ax.hist(there, bins, color=THERE, alpha=0.65, label="the task took part")
        ax.hist(absent, bins, color=ABSENT, alpha=0.65, label="it did not")
        ax.axvline(0, color="0.2", lw=1)
        ax.set(title=name, xlabel="smallest eigenvalue of Sigma - A, in noise scales", yticks=[])
        if np.any(absent < 0):
            share = (
                f"{np.mean(absent < 0):.0%} of the releases\nwithout the task\ncannot come from one\nwith it (1 - 1/e)"
            )
            ax.annotate(share, (0.02, 0.66), xycoords="axes fraction", fontsize=8, color=ABSENT)
        ax.legend(frameon=False, fontsize=8, loc="upper right" if np.any(absent < 0) else "upper center")

    ax, grid = axes[2], np.concatenate([[0.0], np.geomspace(1e-4, 1, 300)])
    for (name, law), color in zip(laws.items(), (ABSENT, THERE), strict=True):
        found = audit.likelihood_ratio(law, Bound(1.0, DELTA, "zero_out"), trials=TRIALS, progress_bar=False)
        ax.plot(grid, audit.proved_power([law], grid, "zero_out"), color=color, lw=5, alpha=0.3)
        ax.plot(*found.roc(), color=color, lw=1.2, label=name.split(",")[0])
    claimed = np.minimum(np.exp(1) * grid, 1 - np.exp(-1) * (1 - grid))
    ax.plot(grid, claimed, color="0.3", ls="--", lw=1, label="what (1, 0) would allow")
    ax.set(
        title="best test: measured, on the proved curve (wide)", xlabel="false alarms", ylabel="absent tasks recognised"
    )
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(Path(__file__).with_name("support_gap.png"), dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
