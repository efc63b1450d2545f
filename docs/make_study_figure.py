"""Draws docs/study.png, what hospitals of the made-up study see, and its truth: ``python docs/make_study_figure.py``."""

import tomllib
from pathlib import Path

import jax
import matplotlib
import numpy as np

import mpmtl_prob as mp

matplotlib.use("Agg")
import matplotlib.pyplot as plt

jax.config.update("jax_enable_x64", True)

ALONE, RELEASE, TRUTH = "0.6", "#1b6ca8", "black"
EFFECTS = {
    "age": "days of stay for one year of age",
    "admission[emergency]": "days, emergency against planned admission",
}


def main() -> None:
    """Publish once with noise from a known seed, and fit every hospital's own model."""
    study = mp.datasets.example_study()
    schema = mp.Schema.from_dict(tomllib.loads(study.files["study.toml"]))
    rows = dict(list(study.patients.groupby("hospital")))
    messages = {name: mp.desk.make_message(schema, rows[name]) for name in schema.participants}
    inbox = mp.desk.Inbox(schema, tuple(messages.values()), (), schema.terms())
    release = mp.desk.publish(inbox, unsafe_seed=0)
    fits = {
        name: mp.desk.fit(schema, rows[name], release, message, chains=2, draws=200, progress_bar=False).coefficients()
        for name, message in messages.items()
    }
    truth = study.truth["stay"]
    page, axes = plt.subplots(1, 2, figsize=(9, 6.2), sharey=False, layout="constrained")
    for ax, (effect, unit) in zip(axes, EFFECTS.items(), strict=True):
        names = sorted(fits, key=lambda name: truth.loc[effect, name])
        true = truth.loc[effect, names].to_numpy()
        alone, own = (np.array([fits[name].loc[effect, column] for name in names]) for column in ("alone", "mean"))
        ends = np.array([fits[name].loc[effect, ["lower", "upper"]] for name in names], dtype=float)
        y = np.arange(len(names))
        ax.hlines(y, *ends.T, color=RELEASE, alpha=0.45, lw=2)
        ax.plot(own, y, "o", color=RELEASE, ms=5, label="with the release, and its 90 % interval")
        ax.plot(alone, y, "o", mfc="none", color=ALONE, ms=5, label="own records alone")
        ax.plot(true, y, "|", color=TRUTH, ms=10, mew=2, label="truth")
        error = [np.sqrt(np.mean((each - true) ** 2)) for each in (alone, own)]
        ax.set(title=f"error alone {error[0]:.2g}, with the release {error[1]:.2g}", xlabel=unit)
        ax.set_yticks(y, names, fontsize=7)
        ax.spines[["top", "right"]].set_visible(False)
        inside = np.mean((ends[:, 0] <= true) & (true <= ends[:, 1]))
        print(
            f"{effect}: error alone {error[0]:.3g}, with the release {error[1]:.3g}; {inside:.0%} of intervals hold the truth"
        )
    page.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    page.savefig(Path(__file__).with_name("study.png"), dpi=110)


if __name__ == "__main__":
    main()
