"""The benchmark of memories' costs: its arithmetic, and a short measurement of real cores."""

import pytest

from benchmarks import cores


def test_a_core_s_share_is_its_difference_to_the_lstm_over_a_whole_update():
    samples = {
        ("lstm", "acting"): [0.001, 0.001, 9.0],
        ("lstm", "learning"): [0.1],
        ("rdn", "acting"): [0.002],
        ("rdn", "learning"): [0.25],
    }
    # 1,600 steps take two seconds if the parts alternate, whatever the bound of the schedule.
    parts = {"environments": 2400.0, "inference": 2400.0, "update": 2400.0, "bound": 2400.0}
    lstm, rdn = cores.rows(samples, parts)
    assert lstm["seconds"] == pytest.approx(50 * 0.001 + 0.1) and lstm["share"] == 0
    assert rdn["share"] == pytest.approx((50 * 0.002 + 0.25 - 0.15) / 2)


def test_the_whole_agent_has_the_same_threads_and_device(monkeypatch, tmp_path):
    asked = []

    def parts(*what, **where):
        asked.append(where)
        return dict.fromkeys(("environments", "inference", "update", "bound"), 1.0)

    samples = {("lstm", part): [1.0] for part in cores.PARTS}
    monkeypatch.setattr(cores, "measure_parts_elsewhere", parts)
    monkeypatch.setattr(cores, "take_turns", lambda *how: samples)
    monkeypatch.setattr(cores, "contenders", lambda *what: {})
    monkeypatch.setattr(cores, "tune_allocator", lambda: None)  # it would change the whole process
    cores.main(["--cores", "lstm", "--threads", "2"])
    assert asked == [{"threads": 2, "device": "cpu"}]


def test_an_acting_step_makes_no_new_initial_state(monkeypatch):
    run = cores.contenders(["lstm"], "cpu")["lstm", "acting"]
    run()  # the first call inspects the state's structure
    monkeypatch.setattr(run.args[0], "initial_state", None)
    run()


def test_every_core_can_be_timed():
    runs = cores.contenders(["lstm", "mlstm"], "cpu")
    assert set(runs) == {(core, part) for core in ("lstm", "mlstm") for part in cores.PARTS}
    for run in runs.values():
        run()
