"""An exported agent's model card, in the format of model hubs."""

import shlex
from collections.abc import Iterable
from typing import Any

from fastweights.agents import OBJECTIVES
from fastweights.evaluation.evaluation_file import Evaluation
from fastweights.evaluation.markdown import markdown_table
from fastweights.evaluation.score_summary import remarks, spread
from fastweights.training import RunOptions, module_arguments


def model_card(payload: dict[str, Any], evaluations: Iterable[Evaluation] = ()) -> str:
    """Return the card of the agent in a checkpoint's `payload`, with its `evaluations`."""
    options = payload["flags"]
    parameters = sum(weight.numel() for weight in payload["model_state_dict"].values())
    objective = options.get("objective", "vtrace")  # TorchBeast's
    kind = OBJECTIVES[objective].title
    tag = "impala" if objective == "vtrace" else objective
    tags = "".join(f"\n- {one}" for one in ("reinforcement-learning", tag, options["core"]))
    seed = f", seed {options['seed']}" if "seed" in options else ""  # TorchBeast's have none
    modules = module_arguments(RunOptions.from_dict(options))
    game = " ".join((options["env"], *options.get("env_options", ())))
    git = payload.get("git")
    commit = git.get("commit") if isinstance(git, dict) else None
    code = f" The code was at revision {commit}." if commit else ""
    command = shlex.join(["fastweights", "evaluate", "PATH_TO_THIS_FOLDER", *modules])
    kept = list(evaluations)
    head = ("protocol", "actions", "longest game", "games", "first seed", "score", "± over")
    table = markdown_table(head, [_score(evaluation) for evaluation in kept])
    notes = [
        f"- {evaluation.rules_in_words()}, {evaluation.action_mode}: {line}.\n"
        for evaluation in kept
        for line in remarks(evaluation)
    ]
    remarked = "".join([*notes, "\n"] if notes else [])
    return f"""---
library_name: fastweights
pipeline_tag: reinforcement-learning
tags:{tags}
---

# {options["core"]} on {options["env"]}

An agent with the memory `{options["core"]}`, trained by {kind} on {game}: {parameters / 1e6:.3f} M
parameters and {payload["step"]:,} agent steps of training{seed}.{code} All options: `config.json`.

## Scores

{table if kept else "None: this agent has not been evaluated."}

A score is the mean of the repeats' means of undiscounted, unclipped returns, ± the standard
deviation of those means (with a single repeat, over its episodes). Longer games are cut off, and
their returns until then count. Game i, counted across all repeats, uses the first seed + i, so rows
with the same first seed share games.

{remarked}## Use

    {command}
"""


def _score(evaluation: Evaluation) -> tuple[str, ...]:
    score = spread(evaluation, "score")
    games = f"{evaluation.repeats} x {len(evaluation.episodes) // evaluation.repeats}"
    return (
        evaluation.rules_in_words(),
        evaluation.action_mode,
        "any" if evaluation.max_frames is None else f"{evaluation.max_frames:,} frames",
        games,
        str(evaluation.seed),
        f"{score} a {evaluation.unit.name}",
        score.over,
    )
