"""What a memory costs: the arithmetic, and one short measurement of real cores."""

import pytest

from benchmarks import cores


def test_a_core_s_share_is_its_difference_to_the_lstm_over_a_whole_update():
    samples = {
        ("lstm", "acting"): [0.001, 0.001, 9.0],
        ("lstm", "learning"): [0.1],
        ("rdn", "acting"): [0.002],
        ("rdn", "learning"): [0.25],
    }
    lstm, rdn = cores.rows(samples, {"bound": 800.0})  # 1,600 steps: two seconds an update
    assert lstm["seconds"] == pytest.approx(50 * 0.001 + 0.1) and lstm["share"] == 0
    assert rdn["share"] == pytest.approx((50 * 0.002 + 0.25 - 0.15) / 2)


def test_every_core_can_be_timed():
    runs = cores.contenders(["lstm", "mlstm"], "cpu")
    assert set(runs) == {(core, part) for core in ("lstm", "mlstm") for part in cores.PARTS}
    for run in runs.values():
        run()
