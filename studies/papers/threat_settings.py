"""Settings of the experiment on threat models."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: of the command
NAME = "threat-models"


@dataclass(frozen=True)
class ThreatModels:
    """The settings of all parts. Every part has a seed of its own; noise is drawn in doubles, and promises nothing.

    Attributes:
        replications: of people, answers and noise behind every measured error.
        people: t, of the errors against people, with ten thousand questions.
        features: d, of the errors against questions, with a thousand people.
        signs: simulated for every error of signs, at least.
        trials: of every attack.
        numbers: that the attackers of each game of odds look at, over its trials.
    """

    replications: int = 400
    people: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10_000)
    features: tuple[int, ...] = (1000, 2000, 5000, 10_000, 20_000)
    signs: int = 40_000
    trials: int = 10_000
    numbers: int = 400_000

    @property
    def name(self) -> str:
        """Of the command."""
        return NAME

    def fast(self) -> ThreatModels:
        """The same in less than a minute: fewer replications, sizes and trials."""
        return replace(
            self, replications=100, people=(10, 100, 1000), features=(1000, 5000, 20_000), signs=10_000, trials=2000,
            numbers=60_000,
        )  # fmt: skip
