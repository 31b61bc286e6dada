"""Presets equal the papers; options survive a checkpoint; TorchBeast's flags work."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fastweights.agents.learner_config import LearnerConfig
from fastweights.cores import CORES
from fastweights.cores.options import is_named_by_size
from fastweights.experiments.sequences import presets as sequence_presets
from fastweights.host.errors import UserError
from fastweights.launch.cli.atari_options import parse, peek
from fastweights.launch.cli.torchbeast_flags import translate
from fastweights.tasks import CodeExecution
from fastweights.training.checks import check_options
from fastweights.training.options import RunOptions, changed_flags
from fastweights.training.presets import PRESETS, preset
from fastweights.training.schedules.choice import plan_of

RESULTS = Path(__file__).parents[2] / "docs" / "results"
FULL = RunOptions(core="rdn", feed_last_action=False)


def parsed(*arguments: str) -> RunOptions:
    return parse(translate(arguments)[0]).run


def test_paper_is_the_published_recipe():
    """Irie et al. 2021, section 4.4 and appendix C."""
    options = preset("paper", "rdn")
    learner = options.learner
    assert (options.unroll_length, options.batch_size, options.bptt) == (50, 32, "full")
    assert (learner.learning_rate, learner.epsilon, learner.alpha) == (6e-4, 0.01, 0.99)
    assert (learner.grad_norm_clipping, learner.momentum) == (40.0, 0.0)
    assert (learner.entropy_cost, learner.baseline_cost, learner.discounting) == (0.01, 0.5, 0.99)
    assert (learner.total_steps, learner.reduction) == (200_000_000, "sum")
    assert (learner.rho_clip, learner.c_clip, learner.pg_rho_clip) == (1.0, 1.0, 1.0)
    assert (options.stem, options.sees_last_action()) == ("auto", False)
    assert options.core_options() == ()


@pytest.mark.parametrize(
    ("core", "bptt"),
    [("rdn", 1), ("lt", 1), ("delta_net", 1), ("delta_rnn", 1), ("srwm", 1), ("lstm", "full")],
)
def test_published_cuts_the_gradient_of_fast_weight_cores_only(core, bptt):
    assert preset("published", core).bptt == bptt


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("core", ["rdn", "lstm"])
def test_presets_pass_their_own_checks_and_survive_a_checkpoint(name, core):
    options = preset(name, core)
    check_options(options)
    assert RunOptions.from_dict(options.to_dict()) == options


@pytest.mark.parametrize(
    ("name", "stored", "env"),
    [
        ("quick", "quick_qbert/seed_1/meta.json", "Qbert"),
        ("afternoon", "afternoon/pong/results.json", "Pong"),
        ("maze", "t_maze/results.json", "TMaze"),
        ("vectors", "popgym/results.json", "popgym:popgym-RepeatPreviousEasy-v0"),
    ],
)
def test_a_preset_is_the_recipe_of_its_stored_results(name, stored, env):
    """Otherwise the command that a page of results quotes would no longer give its figures."""
    read = json.loads((RESULTS / stored).read_text())
    runs = [run["options"] for run in read] if isinstance(read, list) else [read["args"]]
    saved = {run["core"]: RunOptions.from_dict(run) for run in runs if run["env"] == env}
    assert saved
    for core, options in saved.items():
        asked = replace(preset(name, core), seed=options.seed, env=env)
        assert changed_flags(options, asked) == [], core


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("bptt", 3), ("stem", "shallow"), ("precision", "bfloat16"), ("channels_last", False)),
        *(("feed_last_action", True), ("reset_inputs", True), ("head_norm", True)),
        ("head_init", "orthogonal"),
        ("value_scale", 4.0),
    ],
)
def test_every_option_of_the_network_reaches_it(name, value):
    usual, changed = (o.network((4, 84, 84), 6) for o in (FULL, replace(FULL, **{name: value})))
    assert getattr(changed, name) == value != getattr(usual, name)
    assert replace(changed, **{name: getattr(usual, name)}) == usual


def test_normalised_values_are_an_option_of_learner_and_network():
    options = preset("vectors", "lstm")
    assert options.learner.normalize_values and options.network((4,), 2).normalize_values
    assert not FULL.network((4,), 2).normalize_values


def test_options_newer_than_a_checkpoint_take_their_defaults():
    options = preset("plain", "lstm")
    flat = options.to_dict()
    del flat["precision"], flat["micro_batch"], flat["objective"]
    assert RunOptions.from_dict(flat) == replace(options, precision="auto", learner=LearnerConfig())


@pytest.mark.parametrize(
    ("change", "message"), [({"colour": 1}, "no such options"), ({"env": None}, "missing: env")]
)
def test_options_of_something_else_are_refused(change, message):
    flat = {n: v for n, v in (preset("quick", "lstm").to_dict() | change).items() if v is not None}
    with pytest.raises(ValueError, match=message):
        RunOptions.from_dict(flat)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batch_size": "32"}, "batch_size must be a whole number, not '32'"),
        ({"batch_size": True}, "batch_size must be a whole number, not True"),
        (
            {"batch_size": 10**5000},
            "batch_size must be a whole number, not a number of many digits",
        ),
        ({"learning_rate": float("nan")}, "learning_rate must be a number, not nan"),
        ({"learning_rate": 10**400}, "learning_rate must be a number, not a number of many digits"),
        ({"env_options": ["a=1", 2]}, "env_options must be a list, each text"),
        ({"bptt": "ful"}, "bptt must be 'full' or a whole number, not 'ful'"),
        ({"reward_clipping": None}, "reward_clipping must be 'abs_one' or 'none', not None"),
        ({"core_layers": {}}, "core_layers must be a whole number or nothing"),
        ({"savedir": "a\0b"}, "savedir must be a path"),
        ({"env": "x" * 10**6, "core": []}, "core must be text"),
    ],
)
def test_a_file_s_options_are_of_their_kinds(change, says):
    with pytest.raises(ValueError, match=says) as caught:
        check_options(RunOptions.from_dict(preset("quick", "lstm").to_dict() | change))
    assert len(str(caught.value)) < 300


def test_a_whole_number_is_a_number_and_a_list_a_tuple():
    flat = preset("quick", "lstm").to_dict() | {"learning_rate": 1, "env_options": ["a=1"]}
    options = RunOptions.from_dict(flat)
    assert type(options.learner.learning_rate) is float and options.env_options == ("a=1",)


def test_another_objective_or_optimiser_drops_what_the_preset_set_for_its_own():
    """Only the preset's values are dropped; a user's options are refused (test_bad_input.py)."""
    learner = parsed("--preset", "quick", "--objective", "vtrace").learner
    assert preset("quick", "rdn").learner.normalize_advantages
    assert (learner.objective, learner.normalize_advantages) == ("vtrace", False)
    assert (learner.epochs, learner.minibatches, learner.optimizer) == (4, 4, "adam")
    kept = parsed("--preset", "quick", "--objective", "appo", "--clip-range", "0.2").learner
    assert (kept.normalize_advantages, kept.clip_range) == (True, 0.2)
    for typed in (["--gae_lambda=0.9"], ["--normalize-advantages"]):
        with pytest.raises(ValueError, match="belongs to --objective ppo"):
            parsed("--preset", "quick", "--objective", "vtrace", *typed)


def test_a_batch_that_is_used_once_drops_the_preset_s_limit_of_reuse():
    once = ("--preset", "quick", "--epochs", "1", "--minibatches", "1")
    assert preset("quick", "rdn").learner.kl_limit is not None
    assert parsed(*once).learner.kl_limit is None
    in_minibatches = parsed("--preset", "quick", "--epochs", "1").learner
    assert in_minibatches.minibatches == 4
    assert in_minibatches.kl_limit == preset("quick", "rdn").learner.kl_limit
    for limit in ("0.5", "0.01"):  # the second is the preset's own
        with pytest.raises(ValueError, match="--kl-limit ends the reuse of a batch"):
            parsed(*once, "--kl-limit", limit)


@pytest.mark.parametrize("name", ["learning_rate", "alpha", "epsilon", "momentum", "rho_clip"])
def test_a_learner_s_numbers_are_checked_before_it_is_made(name):
    for value in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} must (be|lie)"):
            check_options(RunOptions(learner=LearnerConfig(**{name: value})))


@pytest.mark.parametrize("change", [{"discounting": 2}, {"learning_rate": -1}, {"clip_range": 1}])
def test_whole_numbers_out_of_range_are_refused_too(change):
    """As Python's interface takes them; a command line and files make them floats."""
    (name,) = change
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} must"):
        check_options(RunOptions(learner=LearnerConfig(**change)))


def test_single_options_change_a_preset():
    options = parsed("--preset", "published", "--core", "lstm", "--total-steps", "6400")
    assert (options.core, options.bptt, options.learner.total_steps) == ("lstm", "full", 6400)
    assert options.protocol == "published"


def test_a_preset_s_environment_options_stay_with_its_environment():
    assert preset("maze", "rdn").env_options == ("corridor=10",)
    for given in ([], ["--env", "TMaze"], ["--env", "fastweights/TMaze-v0"]):
        assert parsed("--preset", "maze", *given).env_options == ("corridor=10",)
    for other in ("Catch", "Qbert", "CartPole-v1", "NoSuchGame"):
        assert parsed("--preset", "maze", "--env", other).env_options == ()
    typed = ("--env-options", "pictures=true")
    for given in (["--env", "Catch"], ["--env", "TMaze"], []):
        assert parsed("--preset", "maze", *given, *typed).env_options == ("pictures=true",)


def test_a_resumed_run_keeps_its_environment_options():
    saved = replace(preset("maze", "rdn"), env="Catch", env_options=("pictures=true",))
    assert parse(["--env", "Catch"], saved).run.env_options == ("pictures=true",)


REPEAT = "popgym:popgym-RepeatPreviousEasy-v0"


def test_the_last_action_is_seen_where_the_environment_s_baselines_see_it():
    assert [parsed("--env", env).sees_last_action() for env in ("Pong", "TMaze", REPEAT)] == [
        *(False, False, True)
    ]
    plan = plan_of(parsed("--env", REPEAT, "--device", "cpu"))
    assert (plan.options.feed_last_action, plan.options.sees_last_action()) == (True, True)
    assert plan_of(parsed("--device", "cpu")).options.feed_last_action is False
    assert RunOptions(env=REPEAT).network((4,), 4).feed_last_action is True


@pytest.mark.parametrize(
    ("given", "fed"),
    [
        (["--feed-last-action", "true"], True),
        (["--feed-last-action", "false"], False),
        (["--feed_last_action=false"], False),
        (["--feed-last-action"], True),
        (["--no-feed-last-action"], False),
        (["--feed-last-action", "--seed", "3"], True),
        (["--feed-last-action", "auto"], "auto"),
    ],
)
def test_the_last_action_can_be_asked_for_or_not(given, fed):
    options = parsed("--env", REPEAT, *given)
    assert options.feed_last_action == fed
    assert RunOptions.from_dict(options.to_dict()) == options


def test_the_last_action_is_true_false_or_auto():
    with pytest.raises(UserError, match="'maybe' is not one of auto, false, true"):
        parsed("--feed-last-action", "maybe")


@pytest.mark.parametrize("fed", [True, False])
def test_the_resolved_value_of_auto_is_no_change(fed):
    """Stored runs have true or false; runs from before the option have no value."""
    options = RunOptions(env=REPEAT if fed else "Qbert")
    saved = RunOptions.from_dict(options.to_dict() | {"feed_last_action": fed})
    assert (saved.feed_last_action, changed_flags(saved, options)) == (fed, [])
    other = replace(options, feed_last_action=not fed)
    assert changed_flags(saved, other) == [f"--feed-last-action {not fed} (was {fed})"]
    older = {name: v for name, v in options.to_dict().items() if name != "feed_last_action"}
    assert changed_flags(RunOptions.from_dict(older), saved) == []


def test_torchbeast_flags_keep_their_meaning():
    options = parsed(
        *("--num_actors", "64", "--total_steps", "9600", "--unroll_length", "20"),
        *("--learning_rate", "0.001", "--grad_norm_clipping", "10", "--entropy_cost", "0.02"),
        *("--reward_clipping", "none", "--epsilon", "0.1", "--alpha", "0.9", "--savedir", "out"),
        *("--num_layers", "4", "--hidden_size=256", "--num_head", "8", "--disable_cuda"),
        *("--num_threads", "3"),
        *("--mode", "train", "--num_buffers", "80", "--env", "PongNoFrameskip-v4"),
    )
    learner = options.learner
    assert (options.num_envs, learner.total_steps, options.unroll_length) == (64, 9600, 20)
    assert (learner.learning_rate, learner.grad_norm_clipping) == (0.001, 10)
    assert (learner.entropy_cost, learner.reward_clipping) == (0.02, "none")
    assert (learner.epsilon, learner.alpha, str(options.savedir)) == (0.1, 0.9, "out")
    assert options.core_options() == (("layers", 4), ("width", 256), ("heads", 8))
    assert (options.device, options.env) == ("cpu", "PongNoFrameskip-v4")
    assert options.num_threads == 3


def test_torchbeasts_queue_is_ours():
    assert parsed("--max_learner_queue_size", "4").queue_size == 4


def test_num_actors_are_environments_unless_ray_has_actors_of_its_own():
    """TorchBeast's command lines keep their meaning, also if a run with Ray resumes without it."""
    local = parsed("--num-actors", "64")
    assert (local.num_envs, local.num_actors) == (64, None)
    ray = parsed("--engine", "ray", "--num-actors", "4", "--num-envs", "64")
    assert (ray.num_envs, ray.num_actors) == (64, 4)
    resumed = parse(["--engine", "local"], ray).run
    assert (resumed.num_envs, changed_flags(ray, resumed)) == (64, [])
    resumed = parse(["--engine", "local", "--num-actors", "64"], ray).run
    assert changed_flags(ray, resumed) == []
    for other in ("8", str(RunOptions.num_envs)):
        with pytest.raises(ValueError, match=f"contradicts --num-envs {other}"):
            parsed("--num-actors", "64", "--num-envs", other)


def test_only_lockstep_needs_whole_batches_of_environments():
    published = ("--num-envs", "48", "--batch-size", "32")
    assert plan_of(parsed(*published, "--schedule", "asynchronous")).schedule == "asynchronous"
    with pytest.raises(ValueError, match="try --num-envs 32 or 64, or --schedule asynchronous"):
        plan_of(parsed(*published, "--device", "cpu"))


def test_cuda_graphs_on_another_gpu_are_refused_by_its_name(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(ValueError, match="on a CUDA GPU, not on mps: leave it out"):
        plan_of(RunOptions(cuda_graphs=True, device="mps"))


def test_flags_without_a_meaning_here_are_named():
    kept, ignored = translate(["--num_buffers", "80", "--env", "Pong", "--num_inference_threads=2"])
    assert kept == ["--env", "Pong"]
    assert ignored == ["--num_buffers", "--num_inference_threads"]


@pytest.mark.parametrize("given", [("--mode", "test"), ("--mode=test_render",), ("--mode",)])
def test_a_mode_that_does_not_train_is_refused(given):
    with pytest.raises(UserError, match=r"this command only trains; .* RUN plays"):
        translate([*given])


def test_use_lstm_is_a_core():
    assert parsed("--use_lstm").core == "lstm"


def test_values_with_an_equals_sign_stay_whole():
    options = parsed("--env", "TMaze", "--env-options", "corridor=7", "penalty=0.5", "cap=none")
    assert options.environment_options() == {"corridor": 7, "penalty": 0.5, "cap": None}


def test_early_look_survives_a_flag_without_a_value():
    assert peek(["--core"]).resume is None


def test_a_resumed_run_may_move_but_not_change():
    saved = preset("paper", "rdn")
    moves = ["--device", "cpu", "--num-threads", "3", "--schedule", "asynchronous", "--profile"]
    moves += ["--kernels", "reference", "--no-channels-last"]
    moved = parse(moves, saved).run
    assert changed_flags(saved, moved) == []
    changed = parse(["--seed", "5", "--learning-rate", "0.1"], saved).run
    assert sorted(changed_flags(saved, changed)) == [
        "--learning-rate 0.1 (was 0.0006)",
        "--seed 5 (was 1)",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("--core", "lstm"),
        ("--core-width", "64"),
        ("--env", "Pong"),
        ("--protocol", "machado"),
        ("--bptt", "1"),
        ("--stem", "shallow"),
        ("--head-norm",),
        ("--head-init", "orthogonal"),
        ("--value-scale", "2"),
        ("--feed-last-action", "true"),
        ("--num-envs", "64"),
        ("--batch-size", "16"),
        ("--unroll-length", "20"),
        ("--discounting", "0.9"),
        ("--total-steps", "50000"),
        ("--objective", "ppo"),
    ],
    ids=" ".join,
)
def test_what_a_run_learns_stays_when_it_is_resumed(words):
    saved = preset("paper", "rdn")
    (said,) = changed_flags(saved, parse(list(words), saved).run)
    assert said.startswith(words[0])


@pytest.mark.parametrize("core", CORES)
def test_the_maze_preset_fits_every_core(core):
    options = preset("maze", core)
    check_options(options)
    known = CORES[core].options()
    assert {name for name, _ in options.core_options()} <= set(known)
    if "width" in known and not is_named_by_size(core):
        assert options.core_width == (32 if "heads" in known else 64)


def test_a_core_that_is_named_by_its_size_keeps_it_under_every_preset():
    """rdn_large is RDN in other sizes; with a preset's sizes it would be RDN."""
    assert [core for core in CORES if is_named_by_size(core)] == ["rdn_large"]
    assert preset("maze", "rdn_large").core_options() == ()
    assert preset("maze", "rdn").core_width == 32
    assert parsed("--preset", "maze", "--core", "rdn_large", "--core-width", "64").core_width == 64
    for name in sequence_presets.SEQUENCE_PRESETS:
        large = sequence_presets.sequence_preset(name, "rdn_large", CodeExecution())
        assert not {"layers", "width", "heads", "feedforward"} & set(dict(large.core_options()))
        assert (
            large.core_dropout
            == sequence_presets.sequence_preset(name, "rdn", CodeExecution()).core_dropout
        )
