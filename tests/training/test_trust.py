"""What the files of a run do not decide."""

from small_runs import train

from fastweights.launch import atari
from fastweights.records import load_checkpoint, save_checkpoint
from tests.launch.test_bad_input import error_of


def test_a_resumed_run_joins_a_cluster_only_if_the_command_line_names_it(tmp_path, capsys):
    assert train(tmp_path, "run", "--total-steps", 40) == 0
    run = tmp_path / "run"
    for path in (run / "model.tar", *run.glob("checkpoints/*.pt")):
        payload = load_checkpoint(path)
        payload["flags"] |= {"engine": "ray", "ray_address": "127.0.0.1:1", "num_actors": 1}
        payload["flags"] |= {"total_steps": 400, "final_learning_rate": 0.0}
        save_checkpoint(payload, path)
    said = error_of(atari.main, ["--resume", run], capsys)
    assert "was trained on the Ray cluster at 127.0.0.1:1" in said
    assert "if you trust it, add --ray-address 127.0.0.1:1" in said
    said = error_of(atari.main, ["--resume", run, "--ray-address", "127.0.0.1:1"], capsys)
    assert "no Ray answers there" in said or "--engine ray needs Ray" in said
    assert atari.main(["--resume", str(run), "--engine", "local"]) == 0
