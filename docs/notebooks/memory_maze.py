# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A memory maze in two minutes
#
# The T-maze is the smallest game that needs memory. The agent sees a cue at the start, walks
# along a corridor in which every step looks the same, and must then turn to the side that the cue
# named. An agent without memory wins half of the games.
#
# This notebook trains an agent with a DeltaNet, one with an LSTM and one without memory.

# %%
import contextlib
import io
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from fastweights.launch import atari
from fastweights.records import read_logs


# %% [markdown]
# `atari.main` takes the same options as the command `python launch/atari.py`. The preset `maze`
# sets a corridor of 10 steps, a small network and 300,000 agent steps.


# %%
def train(core: str) -> pd.DataFrame:
    """Train an agent with this core, and return its log."""
    options = ["--preset", "maze", "--core", core, "--total-steps", "300000"]
    where = ["--savedir", "runs", "--xpid", core, "--evaluate-episodes", "0"]
    with contextlib.redirect_stdout(io.StringIO()):
        assert atari.main([*options, *where]) == 0
    return pd.DataFrame(read_logs(Path("runs") / core / "logs.csv"))


logs = {core: train(core) for core in ("delta_net", "lstm", "feedforward")}

# %% [markdown]
# The log has one row per update. `recent_full_game_return` is the mean return of the last 100
# games: 1 for a win, -1 for a loss, and -0.1 for each step that stands still. A game is cut after
# corridor + 10 steps, so an agent that only stands still gets -2. Without memory the mean stays
# near 0.

# %%
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for (core, log), style in zip(logs.items(), ("-", "--", ":"), strict=True):
    returns = log["recent_full_game_return"].astype(float)
    axes.plot(log["step"], returns, style, label=core)
axes.set(xlabel="agent steps", ylabel="mean return of 100 games", ylim=(-2.05, 1.05))
axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %%
pd.DataFrame(
    {
        core: {
            "return at the end": log["recent_full_game_return"].astype(float).iloc[-1],
            "games played": int(log["games"].iloc[-1]),
            "agent steps per second": round(log["agent_steps_per_second"].astype(float).median()),
        }
        for core, log in logs.items()
    }
).round(2)

# %% [markdown]
# Next steps: `python launch/evaluate.py runs/delta_net` plays test games, and `python
# launch/t_maze.py --cores delta_net lstm --seeds 1 2 3` makes a table of several seeds.
