"""Sample Factory on this project's task; prints the agent steps/s that it trains with, as JSON.

    .venv/bin/python run.py --mode serial --seconds 60

Its own trainer, environments and LSTM, with the network, unroll and batch of this project's default
run: the large IMPALA ResNet with 256 features, LSTM of 256 units, 32 environments, unrolls of 50,
batches of 32 unrolls, each learned from once. Its losses are PPO's: its V-trace path crashes.
Needs the environment that install.sh makes, and nothing of this project.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time

WARM_UP = 3  # updates that are not counted
UNROLL, BATCH, ENVIRONMENTS = 50, 32, 32
SPLITS = 2  # of an async worker's environments: some are stepped while others wait for actions
NEVER = 10**9


def arguments(game: str, mode: str, seconds: float, cores: int, folder: str) -> list[str]:
    """Sample Factory's command line."""
    workers = 1 if mode == "serial" else workers_for(cores)
    options = {
        "algo": "APPO",
        "env": f"atari_{game.lower()}",
        "device": "cpu",
        "train_dir": folder,
        "experiment": "run",
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
        "use_rnn": True,
        "rnn_type": "lstm",
        "rnn_size": 256,
        "encoder_conv_architecture": "resnet_impala",
        "encoder_conv_mlp_layers": 256,
        "with_vtrace": False,
        "normalize_input": False,  # a pass over the pixels that this project does not make either
        "summaries_use_frameskip": False,  # count agent steps
        "train_for_env_steps": NEVER,
        "train_for_seconds": round(seconds),
        "save_every_sec": NEVER,
        "save_best_every_sec": NEVER,
        "with_wandb": False,
    }
    return [f"--{name}={value}" for name, value in options.items()]


def workers_for(cores: int) -> int:
    """As many as there are cores for, where all have as many environments in each split."""
    most = ENVIRONMENTS // SPLITS
    return max(count for count in range(1, most + 1) if most % count == 0 and count <= cores)


def rate(updates: list[tuple[float, int]]) -> float:
    """Agent steps/s from (seconds, agent steps so far) after each update, without the warm-up."""
    counted = updates[WARM_UP:]
    if len(counted) < 2:
        raise ValueError(f"only {len(updates)} updates were made: give it more --seconds")
    (start, before), (end, after) = counted[0], counted[-1]
    return (after - before) / (end - start)


def make_game(*arguments: object, **options: object) -> object:
    """Sample Factory's own Atari environment, in whichever process."""
    import gymnasium
    from ale_py.registration import register_v0_v4_envs
    from sf_examples.atari.atari_utils import make_atari_env

    if "QbertNoFrameskip-v4" not in gymnasium.registry:  # ale-py leaves it out for this gymnasium
        register_v0_v4_envs()
    return make_atari_env(*arguments, **options)


def train(game: str, mode: str, seconds: float, cores: int) -> list[tuple[float, int]]:
    """Trains for about `seconds`; the time and agent steps so far after each update."""
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.algo.utils.misc import ExperimentStatus
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner
    from sf_examples.atari.train_atari import parse_atari_args

    class Clock(AlgoObserver):
        """Notes when each update is done, and how long it has trained: 2.1.1 never does."""

        def __init__(self):
            self.updates, self.start = [], time.monotonic()

        def on_training_step(self, runner, training_iteration_since_resume):
            now = time.monotonic()
            self.updates.append((now, runner.total_env_steps_since_resume))
            runner.total_train_seconds = now - self.start

    register_env(f"atari_{game.lower()}", make_game)
    with tempfile.TemporaryDirectory() as folder:
        config = parse_atari_args(arguments(game, mode, seconds, cores, folder))
        _, runner = make_runner(config)
        clock = Clock()
        runner.register_observer(clock)
        status = runner.init()
        if status == ExperimentStatus.SUCCESS:
            status = runner.run()
    if status != ExperimentStatus.SUCCESS:
        raise RuntimeError(f"Sample Factory ended with status {status}")
    return clock.updates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--game", default="Qbert")
    parser.add_argument("--mode", choices=["serial", "async"], default="serial")
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, default 60")
    parser.add_argument("--cores", type=int, default=2, help="of the machine, default 2")
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        updates = train(options.game, options.mode, options.seconds, options.cores)
    found = {"agent_steps_per_second": rate(updates), "updates": len(updates)}
    print(json.dumps(vars(options) | found))


if __name__ == "__main__":
    main()
