"""Attacks on what the package calls proved, one module for each class of attack.

A module's docstring starts with one sentence: what an attacker does. Its ``WAYS`` are what is attacked, in words that the
page *How the guarantees are tested* shows, and its function ``cases(rng, effort)`` yields a :class:`Case` for every attempt.
``effort`` is 1 in ``make attack``, which may take some minutes for each class, and about .02 in the test suite, where
every way must still be tried at least once.

An attack uses nothing but what version 0.3.0 has too, or does without it, so that it can be run against an older checkout:
``python tests/attacks/run.py --package CHECKOUT``. What refuses an attack by an error that names an argument has held.
"""

from typing import NamedTuple


class Case(NamedTuple):
    """One attempt.

    Attributes:
        way: which of the module's ``WAYS``.
        held: whether the guarantee held.
        what: was tried and what came out of it, in one line; it is shown where the guarantee fell.
    """

    way: str
    held: bool
    what: str = ""
