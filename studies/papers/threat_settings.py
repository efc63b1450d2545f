"""Settings of the experiment on threat models."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: name in the command
NAME = "threat-models"


@dataclass(frozen=True)
class ThreatModels:
    """Settings of all parts. Every part has its own seed; the noise is drawn in doubles, so that nothing is guaranteed.

    Attributes:
        replications: replications of people, answers and noise for every measured error.
        people: numbers of people t in the errors against people, with ten thousand questions.
        features: numbers of questions d in the errors against questions, with a thousand people.
        signs: least number of simulated signs for every error of signs.
        trials: trials per attack.
        numbers: number of values that attackers see in each game of odds, over its trials.
    """

    replications: int = 400
    people: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10_000)
    features: tuple[int, ...] = (1000, 2000, 5000, 10_000, 20_000)
    signs: int = 40_000
    trials: int = 10_000
    numbers: int = 400_000

    @property
    def name(self) -> str:
        """Name in the command."""
        return NAME

    def fast(self) -> ThreatModels:
        """Return settings that take less than a minute, with fewer replications, sizes and trials."""
        return replace(
            self, replications=100, people=(10, 100, 1000), features=(1000, 5000, 20_000), signs=10_000, trials=2000,
            numbers=60_000,
        )  # fmt: skip
