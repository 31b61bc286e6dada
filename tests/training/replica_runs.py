"""Runs of several learners as real processes, some of which suffer faults; for test_replicas.py.

    python tests/training/replica_runs.py FOLDER SECONDS_STOPPED CASE...

Each learner is a process, forked after the imports, with the variables that torchrun would set. A
fault happens in a learner's third update. The script prints a line of JSON for each case: its name,
the exit `codes` of the learners in order (minus a signal's number), and the `seconds` from the
fault to the last exit. FOLDER/CASE is the run folder; FOLDER/CASE.RANK is the output of a learner.
"""

import gc
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo
import torch.utils.tensorboard
from ports import free_port
from torch import Tensor

import fastweights.evaluation.training_tests
import fastweights.training.loop
from fastweights.agents.learner import Learner
from fastweights.launch import atari

THIRD = 3
SMALL = ("--num-threads", "1", "--unroll-length", "5", "--core", "rdn", "--core-width", "16")
SMALL = (*SMALL, "--core-heads", "2", "--core-layers", "1", "--core-feedforward", "16")
CATCH = ("--env", "Catch", "--num-envs", "8", "--batch-size", "8", "--total-steps", "400")
ATARI = ("--env", "Qbert", "--stem", "shallow", "--num-envs", "2", "--batch-size", "2")
ATARI = (*ATARI, "--total-steps", "40")
REUSE = ("--objective", "ppo", "--epochs", "2", "--minibatches", "2", "--optimizer", "adam")
REUSE = (*REUSE, "--normalize-advantages", "--reduction", "mean", "--learning-rate", "1e-3")
REUSE = (*REUSE, "--normalize-values", "--value-scale", "0.01")  # a unit that moves
LIMIT = ("--kl-limit", "1e-4")  # shortens some first steps, and ends some batches early
TESTED = ("--evaluate-every", "80", "--evaluate-episodes", "2")
LONG = ("--total-steps", "100000000")
GROUPS = ("--schedule", "asynchronous", "--env-groups", "1")

# The number of the first learner's call for test games in which it is told to stop.
IN_GAMES = {"games-before": 1, "games-between": 2}

Event = Callable[[Learner], None]


def signal_self(number: int) -> Event:
    return lambda learner: os.kill(os.getpid(), number)


def stop_and_go_on(learner: Learner) -> None:
    """Stop this process; a child lets it continue later."""
    if os.fork() == 0:
        time.sleep(float(sys.argv[2]))
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)


def poison(learner: Learner) -> None:
    """Let the network give NaN until the end of this update."""
    weight = next(learner.network.parameters())
    learner.kept = [weight.detach().clone()]
    weight.data.fill_(float("nan"))


def come_apart(learner: Learner) -> None:
    with torch.no_grad():
        next(learner.network.parameters()).view(-1)[0].add_(1e-3)


def die_later(learner: Learner) -> None:
    """Let the learner die after this update and before the next."""
    learner.dies = True


def signal_in_a_long_update(learner: Learner) -> None:
    """Send SIGINT in the second of four gradients, which take two seconds each."""
    sums, calls = learner._sums, itertools.count(1)

    def slow_sums(*batch_and_scale: object) -> dict[str, Tensor]:
        with (Path(sys.argv[1]) / f"long-update.{os.environ['RANK']}.gradients").open("a") as made:
            made.write(".")
        if next(calls) == 2:
            (Path(sys.argv[1]) / "long-update.happened").touch()
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(2)
        return sums(*batch_and_scale)

    learner._sums = slow_sums


def signal_in_the_second_epoch(learner: Learner) -> None:
    """Send SIGINT in the third of four gradient steps; two have already changed the weights."""
    sums, calls = learner._sums, itertools.count(1)

    def signalled(*batch_and_scale: object) -> dict[str, Tensor]:
        if next(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return sums(*batch_and_scale)

    learner._sums = signalled


def raise_error(learner: Learner) -> None:
    raise ZeroDivisionError("an accident")


# name: number of learners, arguments, ranks of the victims, fault
CASES: dict[str, tuple[int, tuple[str, ...], tuple[int, ...], Event | None]] = {
    "one": (1, CATCH, (), None),
    "two": (2, CATCH, (), None),
    "four": (4, CATCH, (), None),
    "mean-one": (1, (*CATCH, "--reduction", "mean"), (), None),
    "mean-two": (2, (*CATCH, "--reduction", "mean"), (), None),
    "atari-one": (1, ATARI, (), None),
    "atari-two": (2, ATARI, (), None),
    "reuse-one": (1, (*CATCH, *REUSE, *LIMIT), (), None),
    "reuse-two": (2, (*CATCH, *REUSE, *LIMIT), (), None),
    "appo-one": (1, (*CATCH, *REUSE, "--objective", "appo"), (), None),
    "appo-two": (2, (*CATCH, *REUSE, "--objective", "appo"), (), None),
    "asynchronous": (2, (*CATCH, *GROUPS), (), None),
    "asynchronous-reuse": (2, (*CATCH, *GROUPS, *REUSE, "--objective", "appo"), (), None),
    "interrupted": (2, (*CATCH, *LONG), (1,), signal_self(signal.SIGINT)),
    "long-update": (2, (*CATCH, *LONG, "--micro-batch", "1"), (0, 1), signal_in_a_long_update),
    "reuse-interrupted": (2, (*CATCH, *REUSE, *LONG), (1,), signal_in_the_second_epoch),
    "games-before": (2, (*CATCH, *LONG, *TESTED), (0,), None),
    "games-between": (2, (*CATCH, *LONG, *TESTED), (0,), None),
    "first-killed": (2, (*CATCH, *LONG), (0,), signal_self(signal.SIGKILL)),
    "other-killed": (2, (*CATCH, *LONG), (1,), signal_self(signal.SIGKILL)),
    "other-killed-asynchronous": (2, (*CATCH, *LONG, *GROUPS), (1,), signal_self(signal.SIGKILL)),
    "late-killed": (2, (*CATCH, *LONG), (1,), die_later),
    "stopped": (2, CATCH, (1,), stop_and_go_on),
    "accident": (2, (*CATCH, *LONG), (1,), raise_error),
    "not-finite": (2, CATCH, (1,), poison),
    "apart": (2, (*CATCH, *LONG), (1,), come_apart),
    "uneven": (3, CATCH, (), None),
    "ray": (2, (*CATCH, "--engine", "ray", "--num-actors", "2"), (), None),
}


def learner(case: str, rank: int, port: int) -> None:
    """Run one learner; the process ends as the command does."""
    count, arguments, victims, event = CASES[case]
    os.setsid()
    folder = Path(sys.argv[1])
    said = os.open(folder / f"{case}.{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1), os.dup2(said, 2)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    update = Learner.update

    def watched(self, rollout):
        self.calls = getattr(self, "calls", 0) + 1
        if event and rank in victims and self.calls == THIRD:
            (folder / f"{case}.happened").touch()
            event(self)
        row = update(self, rollout)
        if kept := self.__dict__.pop("kept", None):
            next(self.network.parameters()).data.copy_(kept[0])
        torch.save(self.network.state_dict(), folder / f"{case}.{rank}.weights")
        torch.save(torch.get_rng_state(), folder / f"{case}.{rank}.random")
        if getattr(self, "dies", False):
            os.kill(os.getpid(), signal.SIGKILL)
        return row

    play, calls = fastweights.evaluation.training_tests.play, itertools.count(1)

    def watched_games(*given, **named):
        if IN_GAMES.get(case) == next(calls):
            (folder / f"{case}.happened").touch()
            os.kill(os.getpid(), signal.SIGINT)
        return play(*given, **named)

    Learner.update, fastweights.training.loop._CHECK_EVERY = watched, 5
    fastweights.evaluation.training_tests.play = watched_games
    sys.exit(atari.main([*SMALL, *arguments, "--savedir", str(folder), "--xpid", case]))


def main() -> None:
    gc.freeze()  # otherwise each child's exit would copy all imported objects
    for case in sys.argv[3:]:
        port, ranks = free_port(), {}
        for rank in range(CASES[case][0]):
            child = os.fork()
            if child == 0:
                learner(case, rank, port)
            ranks[child] = rank
        ended = dict(os.wait() for _ in ranks)
        codes = {ranks[child]: os.waitstatus_to_exitcode(s) for child, s in ended.items()}
        happened = Path(sys.argv[1]) / f"{case}.happened"
        seconds = time.time() - happened.stat().st_mtime if happened.exists() else None
        end = {"case": case, "codes": [codes[rank] for rank in sorted(codes)], "seconds": seconds}
        print(json.dumps(end), flush=True)


if __name__ == "__main__":
    main()
