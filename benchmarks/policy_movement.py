"""Measure how far an update moves the policy, which weights move it, and the gain.

    python benchmarks/policy_movement.py runs/rdn runs/lstm
    python benchmarks/policy_movement.py runs/rdn runs/lstm --learning-rate 5e-4 --json moved.json

Training continues from each checkpoint, in lockstep and without a log. After every update, the KL
divergence (nats, mean over the batch) is computed from the old policy to the policy with

- all new weights;
- the new weights of only the stem, the core or the heads, and the old weights elsewhere.

If two memories move the policy equally far at one learning rate, one can replace the other without
a new search. The gain is the increase of the mean advantage by the update, in standard deviations
of the advantages: on the update's own batch, and on another batch of the same policy, which no
update uses. If only the first is above 0, the update fits noise.

Unless given, the learning rate is the run's at the checkpoint's step, which is 0 if the run has
finished. The run folders are not changed.
"""

import argparse
import copy
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.json_file import check_folder, write_json
from benchmarks.machine import describe
from fastweights.agents import Learner, Network, Rollout
from fastweights.agents.objectives import Estimates
from fastweights.host import Stages, UserError, one_line_errors, user_input
from fastweights.launch.cli.parser import Parser
from fastweights.records import fitting
from fastweights.training import SavedAgent, assembled, open_agent, plan_for
from fastweights.training.saved_agent import unpack
from fastweights.training.schedules.experience import Source, batches

PARTS = ("stem", "core", "heads")
GAINS = ("gain", "gain_elsewhere")
UNUSED = 4  # batches skipped before the first update, because all games start alike


class Moved(NamedTuple):
    """KL divergences in nats and gains of one update, and the norm of the core's output before."""

    whole: float
    stem: float
    core: float
    heads: float
    gain: float  # on its own batch, in standard deviations of the advantages
    gain_elsewhere: float  # on another batch of the same policy
    output_norm: float  # Euclidean norm, mean over the batch


def part_of(weight: str) -> str:
    """Return the part of the network to which the weight of this name belongs."""
    first = weight.split(".")[0]
    return first if first in ("stem", "core") else "heads"


@torch.no_grad()
def outputs(network: Network, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Return log-probabilities [T, B, A] of the actions, and the core's output [T+1, B, E]."""
    inputs: list[Tensor] = []
    hook = network.head_norm.register_forward_pre_hook(lambda module, x: inputs.append(x[0]))
    try:
        rows = rollout.frame, rollout.reward, rollout.is_first, rollout.last_action
        output, _ = network(*rows, rollout.initial_state)
    finally:
        hook.remove()
    return output.policy_logits[: len(rollout.action)].log_softmax(-1), inputs[0]


def divergence(before: Tensor, after: Tensor) -> float:
    """Return the mean KL divergence from `before` to `after`, log-probabilities [..., A]."""
    return (before.exp() * (before - after)).sum(-1).mean().item()


class Yardstick:
    """The mean advantage of a batch's actions under a changing policy, by importance weights.

    The advantages are computed at construction, then centred and scaled to standard deviation 1.
    The importance weights pi / mu are not clipped, so pure-noise advantages have expected gain 0.
    """

    def __init__(self, learner: Learner, rollout: Rollout):
        self._learner, self._rollout = learner, rollout
        estimates, ratio = self._estimate()
        advantages = learner.objective.targets(estimates, learner.config).advantages
        self._advantages = (advantages - advantages.mean()) / advantages.std(correction=0)
        self._ratio = ratio

    def gain(self) -> float:
        """Return the increase of the mean since construction."""
        _, ratio = self._estimate()
        return ((ratio - self._ratio) * self._advantages).mean().item()

    @torch.no_grad()
    def _estimate(self) -> tuple[Estimates, Tensor]:
        estimates, _ = self._learner.estimate(self._rollout)
        return estimates, (estimates.log_pi - estimates.log_mu).exp()


def moved(learner: Learner, other: Network, rollout: Rollout, elsewhere: Rollout) -> Moved:
    """Make one update and measure it; `other` is a copy of the network, for temporary weights.

    `elsewhere` is a batch of the same policy that no update uses.
    """
    old = copy.deepcopy(learner.network.state_dict())
    before, output = outputs(learner.network, rollout)
    yardsticks = Yardstick(learner, rollout), Yardstick(learner, elsewhere)
    learner.update(rollout)
    new = learner.network.state_dict()
    found = {"whole": divergence(before, outputs(learner.network, rollout)[0])}
    gain, gain_elsewhere = (yardstick.gain() for yardstick in yardsticks)
    for part in PARTS:
        other.load_state_dict({n: (new if part_of(n) == part else old)[n] for n in old})
        found[part] = divergence(before, outputs(other, rollout)[0])
    norm = output.norm(dim=-1).mean().item()
    return Moved(**found, gain=gain, gain_elsewhere=gain_elsewhere, output_norm=norm)


def measured(agent: SavedAgent, updates: int, learning_rate: float | None) -> list[Moved]:
    """Return the measurements of the first `updates` updates after the agent's checkpoint.

    Raises:
        UserError: the run has finished, and `learning_rate` is None.
    """
    options = replace(agent.options, schedule="lockstep", engine="local")
    if learning_rate is not None:
        constant = dict.fromkeys(("learning_rate", "final_learning_rate"), learning_rate)
        options = replace(options, learner=replace(options.learner, **constant))
    elif agent.step >= options.learner.total_steps and not options.learner.final_learning_rate:
        raise UserError(
            f"{agent.path} belongs to a finished run, whose learning rate is 0: give an earlier "
            "checkpoint, or set --learning-rate"
        )
    with user_input():
        options, plan = plan_for(options)
    found: list[Moved] = []
    with assembled(options, plan, Stages("learner"), agent.step) as (network, source):
        learner = Learner(network, options.learner, seed=options.seed)
        with fitting(agent.path):
            unpack(agent.payload, learner)
        other = copy.deepcopy(network)
        taken = _taken(source, options.batch_size)
        for elsewhere, rollout in islice(zip(taken, taken, strict=False), UNUSED // 2, None):
            found.append(moved(learner, other, rollout, elsewhere))
            if len(found) == updates:
                return found
    raise AssertionError("rollouts never end")


def _taken(source: Source, batch_size: int) -> Iterator[Rollout]:
    """Yield a copy of every batch."""
    for batch in batches(source.rollouts(), batch_size):
        rollout = batch.rollout.select(torch.arange(batch_size))
        source.release(batch.used_up)
        yield rollout


def table(rows: Mapping[str, Moved]) -> Table:
    """Return the table that the command prints."""
    parts = ("all weights", "stem's", "core's", "heads'")
    title = "KL divergence per update in nats (medians), and its gains (means)"
    shown = Table("run", *parts, "gain", "gain elsewhere", "norm of the core's output", title=title)
    for name, one in rows.items():
        *figures, norm = one
        shown.add_row(name, *(f"{value:.5f}" for value in figures), f"{norm:.2f}")
    return shown


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = Parser(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders or checkpoints of agents")
    parser.add_argument("--updates", type=int, default=8, help="number of updates (default 8)")
    parser.add_argument("--learning-rate", type=float, help="learning rate of all runs' updates")
    parser.add_argument("--json", type=Path, help="file for the machine and every update's figures")
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    given = parser()
    options = given.parse_args(arguments)
    if options.updates < 1:
        given.error(f"--updates must be at least 1, not {options.updates}")
    if options.learning_rate is not None and not 0 < options.learning_rate < math.inf:
        given.error(f"--learning-rate must be above 0, not {options.learning_rate}")
    check_folder(options.json)
    machine, rows, found = describe(), {}, []
    for path in options.runs:
        agent = open_agent(path)
        updates = measured(agent, options.updates, options.learning_rate)
        name = f"{agent.options.core} on {agent.options.env}, {agent.step:,} agent steps"
        of_updates = Moved(*map(median, zip(*updates, strict=True)))
        gains = {name: fmean(getattr(one, name) for one in updates) for name in GAINS}
        rows[f"{name} ({path})"] = of_updates._replace(**gains)
        plain = agent.options.to_dict()
        del plain["savedir"]
        own = {"core": agent.options.core, "env": agent.options.env, "step": agent.step}
        figures = [one._asdict() for one in updates]
        found.append({**own, "options": plain, "updates": figures})
    Console(width=140).print(table(rows))
    write_json(options.json, {"machine": machine, "runs": found})


if __name__ == "__main__":
    main()
