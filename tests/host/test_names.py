"""Unknown names: the nearest known name, and the error message."""

import pytest

from fastweights.host import names

KNOWN = ("lstm", "delta_net", "rdn", "full-game", "noop30", "SpaceInvaders", "quick", "cpu", "elu")


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("lsmt", "lstm"),
        ("LSTM", "lstm"),
        ("delta-net", "delta_net"),
        ("deltanet", "delta_net"),
        ("rnd", "rdn"),
        ("fullgame", "full-game"),
        ("noop", "noop30"),
        ("SpaceInvader", "SpaceInvaders"),
        ("quik", "quick"),
        ("gpu", None),
        ("", None),
        ("transformer", None),
    ],
)
def test_the_nearest_known_name(typo, meant):
    assert names.nearest_name(typo, KNOWN) == meant


def test_the_message_for_an_unknown_name():
    said = names.unknown_name("core", "rnd", ("lstm", "rdn"))
    assert said == "unknown core 'rnd'; known: lstm, rdn; did you mean rdn?"
    assert names.unknown_name("core", "gru", iter(("lstm",))) == "unknown core 'gru'; known: lstm"
    assert names.did_you_mean("machao", ("noop30", "machado")) == "; did you mean machado?"
