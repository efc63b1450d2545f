"""A few cases of every attack: `make attack` runs them all, every week."""

import pytest
from attacks import page
from attacks.run import CLASSES, attack
from helpers.effort import effort


@pytest.mark.parametrize("name", CLASSES)
def test_every_way_of_an_attack_is_tried_and_held(name):
    ways = attack(name, seed=0, effort=effort(0.02, 1.0))["ways"]
    assert all(count["tried"] for count in ways.values()), ways
    assert {way: count["example"] for way, count in ways.items() if count["fell"]} == {}


def test_the_page_shows_the_counts_of_the_attacks():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.page(text) == text
    assert all(f"### {name.replace('_', ' ').capitalize()}" in text for name in CLASSES)
