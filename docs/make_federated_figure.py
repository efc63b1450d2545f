"""Draws docs/federated.png, from messages of real runs: ``python docs/make_federated_figure.py``."""

from pathlib import Path

import matplotlib
import numpy as np

from mpmtl_prob import federated

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SITES, D, PER_SITE = 5, 4, 12
SHOWN, HIDDEN, PUBLIC = "#c8472b", "0.55", "#1b6ca8"
TITLES = {
    "curator": "curator\nthe server sees every vector",
    "secure_sum": "secure sum\nthe server sees the sum, and adds noise",
    "no_curator": "no curator\nthe server sees what everybody sees",
}


def square(vector: np.ndarray) -> np.ndarray:
    """The lower triangle of numbers modulo 2^64 as a symmetric matrix; the last one counts tasks."""
    A = np.zeros((D, D))
    A[np.tril_indices(D)] = vector[:-1].view(np.int64)
    return A + np.tril(A, -1).T


def watched(trust: str, W: np.ndarray) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """A run: what leaves every site, what the server can make of it all, and what is published."""
    invitation = federated.invite(1.0, W.shape[1], D, 0.01, sites=SITES, trust=trust, dropouts=0, scaling="none")
    sites = [federated.Site(k, part) for k, part in enumerate(np.array_split(W, SITES, axis=1))]
    server, left = federated.serve(invitation), []
    stage, sending = next(server)
    while True:
        replies = {i: sites[i].answer(invitation, stage, received) for i, received in sending.items()}
        if stage in ("send", "mask"):
            left = [square(np.frombuffer(reply["vector"], "<u8")) for reply in replies.values()]
        try:
            stage, sending = server.send(replies)
        except StopIteration as end:
            total, inside = end.value
            release = federated.settle(invitation, total, inside)
            return left, square(total), release.sigma[0] - release.mechanisms[0].mean


def tile(ax, matrix: np.ndarray, frame: str, masked: bool = False) -> None:
    """One matrix, in colours where it says something."""
    largest = np.abs(matrix).max()
    ax.imshow(matrix, cmap="Greys" if masked else "RdBu_r", vmin=-largest, vmax=largest)
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(color=frame, linewidth=2.2)


def column(part, trust: str, W: np.ndarray, first: bool) -> None:
    """One way to trust: owners below, the public above."""
    left, total, published = watched(trust, W)
    grid = part.add_gridspec(4, SITES, height_ratios=[1.5, 1.5, 1, 1], hspace=0.28, wspace=0.12,
                             left=0.2 if first else 0.06, right=0.98, top=0.86, bottom=0.02)  # fmt: skip
    top, middle = part.add_subplot(grid[0, 1:4]), part.add_subplot(grid[1, 1:4])
    tile(top, published, PUBLIC)
    tile(middle, published if trust == "no_curator" else total, PUBLIC if trust == "no_curator" else SHOWN)
    said = {"curator": "each matrix below,\nand their sum", "secure_sum": "the sum", "no_curator": "the release"}[trust]
    middle.text(4.2, 1.5, said, fontsize=8.5, va="center", color=PUBLIC if trust == "no_curator" else SHOWN)
    top.text(4.2, 1.5, "the release", fontsize=8.5, va="center", color=PUBLIC)
    low, own = [], []
    for k, V in enumerate(np.array_split(W, SITES, axis=1)):
        low.append(part.add_subplot(grid[2, k]))
        tile(low[k], left[k], SHOWN if trust == "curator" else HIDDEN, masked=trust != "curator")
        own.append(part.add_subplot(grid[3, k]))
        tile(own[k], V @ V.T, "black")
    if first:
        for ax, text in (
            (top, "everybody\nsees"),
            (middle, "the server\nsees"),
            (low[0], "leaves a\nsite"),
            (own[0], "a site\nhas"),
        ):
            x = -0.25 if ax in (low[0], own[0]) else -1.35
            ax.text(x, 0.5, text, transform=ax.transAxes, fontsize=9, ha="right", va="center")
    part.suptitle(TITLES[trust], fontsize=10.5)


def main() -> None:
    rng = np.random.default_rng(3)
    W = rng.standard_normal((D, 2)) @ rng.standard_normal((2, SITES * PER_SITE))
    W = W / np.linalg.norm(W, axis=0)
    figure = plt.figure(figsize=(12.6, 5.2))
    parts = figure.subfigures(1, 3, width_ratios=[1.18, 1, 1])
    for k, trust in enumerate(TITLES):
        column(parts[k], trust, W, k == 0)
    figure.savefig(Path(__file__).with_name("federated.png"), dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
