"""Bad input prints one error line, exits with code 2, and loses no data."""

import shutil
import sys
from dataclasses import dataclass
from typing import Annotated

import pytest
import tyro
from small_runs import StoppingDisplay

from fastweights.launch import atari, evaluate, list_ops, replay, report, t_maze, watch
from fastweights.launch.cli.parser import typed_options

FAST = ["--num-threads", "1", "--num-envs", "4", "--batch-size", "4", "--unroll-length", "4"]
CATCH = ["--env", "Catch", "--core-width", "16", *FAST]


def error_of(main, arguments, capsys) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(list(map(str, arguments)))
    assert exit_.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1
    return line


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert atari.main([*CATCH, "--total-steps", "64", "--savedir", str(folder), "--xpid", "a"]) == 0
    return folder / "a"


@pytest.fixture
def half_trained(tmp_path, monkeypatch):
    """Return a run that stopped at its first checkpoint."""
    arguments = [*CATCH, "--total-steps", "640", "--savedir", str(tmp_path), "--xpid", "half"]
    monkeypatch.setattr("fastweights.experiments.agents.run.ProgressDisplay", StoppingDisplay)
    assert atari.main(arguments) == 130
    monkeypatch.undo()
    return tmp_path / "half"


@pytest.mark.parametrize("width", ["40", "200"])
@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        (atari, ["--num-envs", "x"], "error: --num-envs INT: must be a whole number (1000000"),
        (atari, ["--core-width", "x"], "error: --core-width INT: must be a whole number"),
        (
            atari,
            ["--kl-limit", "off"],
            "--kl-limit FLOAT: must be a number or None, not 'off' (see",
        ),
        (atari, ["--learning-rate", "x"], "error: --learning-rate FLOAT: must be a number, not"),
        (atari, ["--num-envs"], "error: Missing value for argument '--num-envs'."),
        (atari, ["--unrol-length", "5"], "--unrol-length, 5: did you mean --unroll-length INT?"),
        (atari, ["Qbert"], "error: Unrecognized options: Qbert (see --help)"),
        (list_ops, ["--depth", "ten"], "error: --depth INT: must be a whole number"),
        (t_maze, ["--coers", "rdn"], "--coers rdn; did you mean --cores? (see --help)"),
        (watch, [], "error: Missing from python launch/watch.py: RUN Run folder"),
    ],
)
def test_what_cannot_be_parsed_is_one_line_in_any_terminal(
    command, arguments, says, width, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", width)
    assert says in error_of(command.main, arguments, capsys)


def test_a_number_left_out_is_none_in_any_case_and_text_stays_text():
    @dataclass
    class Options:
        limit: float | None = 1.0
        window: int | None = 1
        name: str | None = "core"

    words = ["--limit", "none", "--window", "None", "--name", "none"]
    assert typed_options(Options, words) == Options(None, None, "none")
    assert typed_options(Options, ["--limit", "2", "--window", "1e3"]) == Options(2.0, 1_000)


def test_warnings_of_a_valid_command_line_are_printed(capsys):
    def loud(text: str) -> str:
        print(f"warning: {text} is old", file=sys.stderr)
        return text

    @dataclass
    class Options:
        way: Annotated[str, tyro.conf.arg(constructor=loud)] = "new"

    assert typed_options(Options, ["--way.text", "slow"]).way == "slow"
    assert capsys.readouterr().err == "warning: slow is old\n"


def test_help_is_help(capsys):
    with pytest.raises(SystemExit) as exit_:
        atari.main(["--help"])
    assert not exit_.value.code and "--unroll-length INT" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--env", "Qbret"], "did you mean Qbert"),
        (
            ["--env", "no_such_module:Game-v0"],
            "installed packages, PYTHONPATH and the current folder",
        ),
        (
            ["--env", "..:x"],
            "the module of '..:x' begins with a dot: use the form my_module:MyGame-v0",
        ),
        (["--env", "Pendulum-v1"], "whose actions are continuous: supported are Discrete"),
        (["--env", "Pong", "--env-options", "flicker=1.5"], "flicker must be from 0 to 1"),
        (["--env", "Catch", "--env-options", "flicker=0.5"], "Catch does not take the options"),
        (["--feed-last-action", "maybe"], "'maybe' is not one of auto, false, true"),
        (["--core", "rnd"], "known: feedforward, feedforward_gated, cnn, elman, gru, lstm"),
        (["--core", "rnd"], "did you mean rdn?"),
        (["--core", "Delta-Net"], "did you mean delta_net?"),
        (["--preset", "quik"], "known: paper, published, quick"),
        (["--preset", "quik"], "did you mean quick?"),
        (["--protocol", "macho"], "known: full-game, published, machado, noop30"),
        (["--protocol", "machao"], "did you mean machado?"),
        (["--kernels", "chunkd"], "did you mean chunked?"),
        (["--schedule", "lockstp"], "did you mean lockstep?"),
        (["--precision", "float23"], "did you mean float32?"),
        (["--env-options", "stiky=0.1"], "did you mean sticky?"),
        (["--env", "TMaze", "--env-options", "coridor=3"], "did you mean corridor?"),
        (
            ["--env-options", "sticky=0.25", "--env_options=frame_stack=1"],
            "error: --env-options is given 2 times: list all values after one --env-options",
        ),
        (["--env", "Catch", "--core-width", "90000"], "GB of memory, and cpu has"),
        (["--env", "Catch", "--core", "lstm", "--core-width", "90000"], "needs at least 390 GB"),
        (["--env", "Combat"], "Combat needs two or more players"),
        (["--env", "MiniGrid-MemoryS7-v0"], "pip install minigrid"),
        (["--corre", "lstm"], "did you mean --core STR?"),
        (["--env", "Catch", "--protocol", "machado"], "for Atari games"),
        (["--env", "Catch", "--env-options", "corridor"], "name=value"),
        (["--env", "Catch", "--env-options", "corridor=3"], "it has: pictures (true or false)"),
        (["--env", "TMaze", "--env-options", "corridor=ten"], "must be a whole number, not 'ten'"),
        (["--env", "TMaze", "--env-options", "corridor=2.5"], "must be a whole number, not 2.5"),
        (["--env", "FrozenLake-v1", "--env-options", "map_name=5x5"], "KeyError: '5x5'"),
        (["--env", "Catch", "--core-heads", "3"], "128 cannot be split into 3 heads"),
        (["--env", "Catch", "--core", "lstm", "--core-heads", "4"], "it has: width, forget_bias"),
        (["--env", "Catch", "--core-feature-map", "relu"], "known: softmax, elu_sum"),
        (["--env", "Catch", "--stem", "resnet"], "use --stem mlp"),
        (
            ["--env", "Catch", "--stem", "vgg"],
            "known: auto, resnet, shallow, shallow_norm",
        ),
        (["--num-envs", "8"], "try --batch-size 8"),
        (["--num-envs", "48", "--batch-size", "32"], "try --num-envs 32 or 64"),
        (["--num-envs", "4000000000"], "--num-envs must lie in [1, 2^20], not 4000000000"),
        (["--batch-size", "4000000000"], "--batch-size must lie in [1, 2^20]"),
        (["--unroll-length", "0"], "--unroll-length must be at least 1"),
        (["--total-steps", "100"], "--total-steps 100 is less than one update"),
        (["--micro-batch", "-1"], "--micro-batch must be at least 0"),
        (["--bptt", "0"], "--bptt must be at least 1"),
        (["--discounting", "1.5"], "[0, 1]"),
        (["--auto-resume", "--xpid", ""], "--xpid needs a name"),
        (["--epochs", "0"], "--epochs must be at least 1"),
        (["--minibatches", "5"], "does not divide --batch-size 32: all minibatches have"),
        (["--minibatches", "24"], "try --minibatches 16 or 32"),
        (["--preset", "quick", "--clip-range", "1"], "--clip-range must lie in (0, 1), not 1"),
        (["--preset", "quick", "--gae-lambda", "1.1"], "--gae-lambda must lie in [0, 1]"),
        (["--preset", "quick", "--kl-limit", "0"], "error: --kl-limit must be above 0, not 0"),
        (["--kl-limit", "0.02"], "add --epochs or --minibatches, or leave --kl-limit out"),
        (["--baseline-cost", "-1"], "--baseline-cost must be at least 0, not -1.0"),
        (["--gae-lambda", "0.9"], "leave --gae-lambda out, or --objective ppo"),
        (["--objective", "appo", "--gae-lambda", "0.9"], "and the objective is appo"),
        (["--adam-beta1", "0.8"], "leave --adam-beta1 out, or --optimizer adam"),
        (["--preset", "quick", "--alpha", "0.9"], "--alpha belongs to --optimizer rmsprop"),
        (["--objective", "impala"], "'impala' is not one of appo, ppo, vtrace"),
        (["--value-scale", "1e-23"], "--value-scale must lie in [1e-9, 1e9], not 1e-23"),
        (["--alpha", "2"], "--alpha must lie in [0, 1], not 2"),
        (["--learning-rate", "inf"], "--learning-rate must be finite"),
        (["--grad-norm-clipping", "0"], "--grad-norm-clipping must be above 0"),
        (["--seed", "-1"], "--seed must lie in"),
        (
            ["--env", "Catch", "--core-window", "1000000000", "--core", "transformer"],
            "at most 1000000",
        ),
        (["--checkpoint-minutes", "0"], "above 0"),
        (["--checkpoint-minutes", "nan"], "--checkpoint-minutes must be a number, not nan"),
        (["--evaluate-max-frames", "0"], "--evaluate-max-frames must be at least 1"),
        (["--evaluate-every", "100"], "--evaluate-every needs --evaluate-episodes"),
        (["--evaluate-max-frames", "9"], "--evaluate-max-frames needs --evaluate-episodes"),
        (["--evaluate-episodes", "-1"], "--evaluate-episodes must be at least 0"),
        (["--device", "gpu"], "auto, cpu, cuda"),
        (["--cuda-graphs", "--device", "cpu"], "chosen on a CUDA GPU, not on cpu: leave it out"),
        (["--learner-device", "gpu"], "--learner-device 'gpu' is not one of auto, cpu, cuda"),
        (["--device", "meta"], "--device 'meta' is not one of auto, cpu, cuda"),
        (["--actor-gpus", "0.5"], "leave --actor-gpus out, or --engine ray"),
        (["--env-groups", "0"], "--env-groups must be at least 1"),
        (["--queue-size", "-1"], "--queue-size must be at least 0"),
        (["--num-threads", "-1"], "error: --num-threads must lie in [0, 4096], not -1"),
        (["--resume", "nowhere"], "no such run folder"),
        (["--resume", "nowhere", "--preset", "quick"], "contradict"),
    ],
)
def test_training_refuses(arguments, says, tmp_path, capsys):
    line = error_of(atari.main, ["--savedir", tmp_path, *arguments], capsys)
    assert says in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [[], ["--xpid", "a"]])
@pytest.mark.parametrize("below", [".", "runs"])
def test_a_file_in_the_place_of_the_folder_of_runs(name, below, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    line = error_of(atari.main, [*CATCH, "--savedir", file / below, *name], capsys)
    assert f"{file} is a file; choose a --savedir" in line and "free" not in line


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (atari, ["--resume", "nope"]),
        (list_ops, ["--resume", "nope"]),
        (evaluate, ["nope"]),
        (watch, ["nope"]),
        (evaluate, []),
    ],
)
def test_where_there_is_no_run_none_is_named(command, arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = error_of(command.main, arguments, capsys)
    assert "there are no runs in this folder or runs yet" in line and "latest" not in line


def test_where_there_are_runs_the_nearest_or_the_newest_is_named(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained.parent.parent)
    runs = trained.parent.name
    line = error_of(atari.main, ["--resume", f"{runs}/nope"], capsys)
    assert f"the newest run is {runs}/a" in line
    assert f"did you mean {runs}/a?" in error_of(evaluate.main, [f"{runs}/A"], capsys)
    inside = error_of(evaluate.main, [f"{runs}/a/modle.tar"], capsys)
    assert f"it would be inside the run {runs}/a: give that run" in inside


def test_a_folder_of_runs_is_no_run(trained, capsys):
    runs = trained.parent
    for main, words in ((evaluate.main, [runs]), (atari.main, ["--resume", runs])):
        line = error_of(main, words, capsys)
        assert f"it holds a run: give {trained}" in line
    (runs / "table.md").write_text("")
    line = error_of(report.main, [trained, runs / "table.md"], capsys)
    assert f"table.md is a file: give run folders, such as {runs}/*/" in line
    (runs / "table.md").unlink()


def test_training_refuses_to_overwrite_a_run_before_it_makes_a_game(trained, monkeypatch, capsys):
    monkeypatch.setattr("fastweights.experiments.agents.run.assembled", None)  # not called
    again = [*CATCH, "--savedir", trained.parent, "--xpid", trained.name]
    assert "--resume" in error_of(atari.main, again, capsys)


def test_a_resumed_run_stays_where_it_is(trained, tmp_path, capsys):
    for elsewhere in (["--xpid", "b"], ["--savedir", tmp_path]):
        line = error_of(atari.main, ["--resume", trained, *elsewhere], capsys)
        assert "a resumed run stays in its folder" in line


def test_unknown_home_folders_are_one_line(trained, capsys):
    nobody = "~no_such_user_7/runs"
    for main, words in (
        (atari.main, [*CATCH, "--savedir", nobody]),
        (evaluate.main, [nobody]),
        (watch.main, [trained, "--out", f"{nobody}/a.mp4"]),
        (list_ops.main, ["--savedir", nobody]),
        (list_ops.main, ["--data", nobody]),
        (list_ops.main, ["--table", "2", "--runs", nobody]),
    ):
        assert f"{nobody}" in (line := error_of(main, words, capsys)) and "home folder" in line


def test_loops_of_links_are_one_line(trained, tmp_path, capsys):
    (tmp_path / "loop").symlink_to("loop")
    (run := tmp_path / "run").mkdir()
    shutil.copy(trained / "meta.json", run)
    (run / "loop").symlink_to("loop")
    for main, words in (
        (evaluate.main, [run]),
        (atari.main, ["--resume", run]),
        (report.main, [trained, "--out", tmp_path / "loop"]),
        (t_maze.main, ["--runs", tmp_path / "loop"]),
    ):
        assert "loop" in error_of(main, words, capsys)


def test_a_wrong_number_of_cpus_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FASTWEIGHTS_CPUS", "abc")
    line = error_of(t_maze.main, ["--seeds", "1", "--runs", tmp_path / "new"], capsys)
    assert "FASTWEIGHTS_CPUS must be a number from 1 to" in line
    assert not (tmp_path / "new").exists()


def test_games_that_cannot_be_kept_are_shown_before_the_error(trained, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (run / "evaluations").write_text("in the way")
    games = ["--episodes", "2", "--repeats", "1", "--no-clip"]
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([str(run), *games])
    said = capsys.readouterr()
    assert "full-game return" in said.out and "error: the games were not saved: " in said.err


def test_an_export_goes_into_a_folder(trained, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    line = error_of(evaluate.main, [trained, "--export", tmp_path / "file"], capsys)
    assert "is a file: give a folder" in line


def test_a_finished_run_is_not_resumed(trained, capsys):
    assert "has finished" in error_of(atari.main, ["--resume", trained], capsys)


@pytest.mark.parametrize(
    "change",
    [["--core", "lstm"], ["--env", "TMaze"], ["--total-steps", "6400"], ["--learning-rate", "1"]],
)
def test_resume_refuses_contradictions(half_trained, change, capsys):
    before = (half_trained / "logs.csv").read_bytes()
    line = error_of(atari.main, ["--resume", half_trained, *change], capsys)
    assert "contradict --resume" in line and change[0] in line
    assert (half_trained / "logs.csv").read_bytes() == before


def test_resume_accepts_the_same_again_and_what_changes_nothing(half_trained):
    same = ["--env", "Catch", "--num-envs", "4", "--checkpoint-minutes", "5"]
    assert atari.main(["--resume", str(half_trained), *same]) == 0


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"not a checkpoint"])
def test_evaluate_refuses_a_file_that_is_no_checkpoint(content, tmp_path, capsys):
    (tmp_path / "model.pt").write_bytes(content)
    assert "model.pt" in error_of(evaluate.main, [tmp_path / "model.pt"], capsys)


def test_evaluate_refuses_a_truncated_checkpoint(trained, tmp_path, capsys):
    whole = (trained / "model.tar").read_bytes()
    (tmp_path / "half.pt").write_bytes(whole[: len(whole) // 2])
    assert "truncated" in error_of(evaluate.main, [tmp_path / "half.pt"], capsys)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere"),
        (["{run}", "--episodes", "0"], "--episodes must be at least 1"),
        (["{run}", "--repeats", "0"], "--repeats must be at least 1"),
        (["{run}", "--num-envs", "-1"], "--num-envs must be at least 0"),
        (["{run}", "--max-frames", "-1"], "--max-frames must be at least 0"),
        (["{run}", "--protocol", "machado"], "for Atari games"),
        (["{run}", "--seed", "-1"], "--seed must lie in"),
        (["{run}", "{run}", "--export", "somewhere"], "--export takes one run"),
        (["{run}", "--export", "x", "--episodes", "2"], "plays no games: leave out --episodes"),
        ([], "at least one run"),
        (["{run}", "--protocol", "machao"], "machado, noop30, trained; did you mean machado?"),
        (["{run}", "--protocol", "traind"], "did you mean trained?"),
        (["{run}", "--clip-seconds", "0"], "--clip-seconds must lie in (0, 1e9], not 0.0"),
        (["{run}", "--clip-seconds", "1e308"], "must lie in (0, 1e9]"),
        (["{run}", "--no-clip", "--clip-format", "gif"], "no clip: leave out --clip-format"),
        (["{run}", "--episodes", "1000000000"], "x --repeats 5 is more than 2,147,483,648 games"),
        (["{run}", "--env", "TMaze"], "was trained on Catch, not on --env TMaze"),
        (["{run}", "--env", "Cach"], "did you mean Catch"),
    ],
)
def test_evaluate_refuses(arguments, says, trained, capsys):
    arguments = [str(trained) if argument == "{run}" else argument for argument in arguments]
    assert says in error_of(evaluate.main, arguments, capsys)


@pytest.mark.parametrize("command", [watch, replay])
def test_an_agent_plays_the_game_that_it_was_trained_on(command, trained, capsys):
    line = error_of(command.main, [trained, "--env", "TMaze"], capsys)
    assert "was trained on Catch, not on --env TMaze" in line


def test_the_agents_game_may_be_named_in_another_spelling(trained):
    few = ["--episodes", "1", "--repeats", "1", "--num-threads", "1", "--no-clip"]
    assert evaluate.main([str(trained), "--env", "fastweights/Catch-v0", *few]) == 0
