"""Lines of a CSV file are taken apart one by one, and as the reader of the standard library does."""

import csv

import numpy as np
import pytest

from mpmtl_prob._util.files import fields


def by_the_reader(line):
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def test_a_line_is_taken_apart_as_the_reader_of_csv_does():
    rng = np.random.default_rng(0)
    for length in rng.integers(0, 9, 20_000):
        line = "".join(rng.choice(list('ab,,"" \r\n\0\t;')) for _ in range(length))
        assert fields(line) == by_the_reader(line)


@pytest.mark.parametrize("length", [2**17 - 1, 2**17, 2**17 + 1])
@pytest.mark.parametrize("before", ["", "1,"])
def test_so_is_a_line_with_a_field_that_is_too_long(length, before):
    assert fields(before + "a" * length) == by_the_reader(before + "a" * length)
