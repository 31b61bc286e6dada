"""Train with Sample Factory on this project's task and print agent steps/s as JSON.

    .venv/bin/python run.py --mode serial --seconds 60

The trainer, environments and LSTM are Sample Factory's. Network, unroll and batch are those of this
project's default run: the large IMPALA ResNet with 256 features, an LSTM of 256 units, 32
environments, unrolls of 50, batches of 32 unrolls, each used once. The losses are PPO's, because
the V-trace path of this version crashes. The script needs the environment that install.sh creates
and nothing from this project.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 3  # updates before the rate is measured
UNROLL, BATCH, ENVIRONMENTS = 50, 32, 32
SPLITS = 2  # groups of an async worker's environments: one steps while the other waits
NEVER = 10**9


def arguments(game: str, mode: str, seconds: float, cores: int, folder: str) -> list[str]:
    """Return Sample Factory's command line."""
    workers = 1 if mode == "serial" else workers_for(cores)
    options = {
        "seed": 1,
        "serial_mode": mode == "serial",
        "async_rl": mode == "async",
        "num_workers": workers,
        "num_envs_per_worker": ENVIRONMENTS // workers,
        "worker_num_splits": 1 if mode == "serial" else SPLITS,
        "rollout": UNROLL,
        "recurrence": UNROLL,
        "batch_size": UNROLL * BATCH,
        "num_batches_per_epoch": 1,
        "num_epochs": 1,
        "rnn_size": 256,
        "encoder_conv_architecture": "resnet_impala",
        "encoder_conv_mlp_layers": 256,
        "with_vtrace": False,
        "normalize_input": False,  # this project does not normalise pixels either
        "train_for_env_steps": NEVER,
        "train_for_seconds": round(seconds),
    }
    return command_line(game, folder, options)


def command_line(game: str, folder: str, options: dict[str, Any]) -> list[str]:
    """Return the command line from `options` and those common to all runs: an LSTM, no files."""
    common = {
        "algo": "APPO",
        "env": f"atari_{game.lower()}",
        "device": "cpu",
        "train_dir": folder,
        "experiment": "run",
        "use_rnn": True,
        "rnn_type": "lstm",
        "summaries_use_frameskip": False,  # count agent steps
        "save_every_sec": NEVER,
        "save_best_every_sec": NEVER,
        "with_wandb": False,
    }
    return [f"--{name}={value}" for name, value in (common | options).items()]


def workers_for(cores: int) -> int:
    """Return the largest number of workers up to `cores` that splits the environments evenly."""
    most = ENVIRONMENTS // SPLITS
    return max(count for count in range(1, most + 1) if most % count == 0 and count <= cores)


def rate(updates: list[tuple[float, int]]) -> float:
    """Return agent steps/s after the warm-up; `updates` are (seconds, agent steps so far)."""
    counted = updates[WARM_UP:]
    if len(counted) < 2:
        raise ValueError(f"only {len(updates)} updates were made; raise --seconds")
    (start, before), (end, after) = counted[0], counted[-1]
    return (after - before) / (end - start)


def make_game(*arguments: object, **options: object) -> object:
    """Create Sample Factory's Atari environment; its workers call this, too."""
    import gymnasium
    from ale_py.registration import register_v0_v4_envs
    from sf_examples.atari.atari_utils import make_atari_env

    if "QbertNoFrameskip-v4" not in gymnasium.registry:  # not registered automatically
        register_v0_v4_envs()
    return make_atari_env(*arguments, **options)


def train(game: str, mode: str, seconds: float, cores: int) -> list[tuple[float, int]]:
    """Train for about `seconds` and return (seconds, agent steps so far) after each update."""
    updates: list[tuple[float, int]] = []
    start = time.monotonic()

    def clock(runner: Any) -> None:
        now = time.monotonic()
        updates.append((now, runner.total_env_steps_since_resume))
        runner.total_train_seconds = now - start  # 2.1.1 never sets it

    with tempfile.TemporaryDirectory() as folder:
        run(game, arguments(game, mode, seconds, cores, folder), clock)
    return updates


def run(game: str, words: list[str], after_update: Callable[[Any], None]) -> None:
    """Train with the command line `words`; call `after_update(runner)` after each update."""
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.algo.utils.misc import ExperimentStatus
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner
    from sf_examples.atari.train_atari import parse_atari_args

    class AfterUpdates(AlgoObserver):
        def on_training_step(self, runner, training_iteration_since_resume):
            after_update(runner)

    register_env(f"atari_{game.lower()}", make_game)
    _, runner = make_runner(parse_atari_args(words))
    runner.register_observer(AfterUpdates())
    status = runner.init()
    if status == ExperimentStatus.SUCCESS:
        status = runner.run()
    if status != ExperimentStatus.SUCCESS:
        raise RuntimeError(f"Sample Factory ended with status {status}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="Qbert", help="game (default Qbert)")
    parser.add_argument(
        "--mode", choices=["serial", "async"], default="serial", help="default serial"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="length of the training in seconds (default 60)"
    )
    parser.add_argument("--cores", type=int, default=2, help="CPU cores to use (default 2)")
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        updates = train(options.env, options.mode, options.seconds, options.cores)
    found = {"agent_steps_per_second": rate(updates), "updates": len(updates)}
    print(json.dumps(vars(options) | found))


if __name__ == "__main__":
    main()
