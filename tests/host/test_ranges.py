"""Ranges as texts: what lies in them, and what the messages say."""

import math

import pytest

from fastweights.host import SEED, check_range


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        ("[0, 1]", (0, 0.5, 1), (-1e-9, 1 + 1e-9)),
        ("[0, 1)", (0, 0.999), (1, -1)),
        ("(0, 1)", (1e-9,), (0, 1)),
        ("(0, inf)", (1e-9, 1e300, 10**400), (0, -1)),
        ("(0, inf]", (1e-9, math.inf), (0, -math.inf)),
        ("(-inf, inf)", (-1e300, 0), ()),
        (SEED, (0, 2**31 - 1), (-1, 2**31)),
    ],
)
def test_ends_belong_to_square_brackets(allowed, inside, outside):
    for value in inside:
        check_range("x", value, allowed)
    check_range("x", None, allowed)
    for value in outside:
        with pytest.raises(ValueError, match=r"^--x must "):
            check_range("x", value, allowed)


@pytest.mark.parametrize(
    ("value", "allowed", "said"),
    [
        (2.0, "[0, 1]", "--clip-range must lie in [0, 1], not 2.0"),
        (-1, "[0, inf)", "--clip-range must be at least 0, not -1"),
        (0, "(0, inf]", "--clip-range must be above 0 (inf: no limit), not 0"),
        (-1, SEED, "--clip-range must lie in [0, 2^31), not -1"),
        (math.nan, "[0, 1]", "--clip-range must be a number, not nan"),
        (math.inf, "(0, inf)", "--clip-range must be finite, not inf"),
    ],
)
def test_messages_name_the_flag_and_what_is_allowed(value, allowed, said):
    with pytest.raises(ValueError) as raised:
        check_range("clip_range", value, allowed)
    assert str(raised.value) == said
