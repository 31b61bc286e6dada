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
# # A run's logs in pandas
#
# Every run writes one row per update into `RUN/logs.csv`. This notebook makes a short run of
# Catch and looks at its log. [The log's columns](../reports.md#the-log) are described with the
# reports.

# %%
import contextlib
import io

import matplotlib.pyplot as plt
import pandas as pd

from fastweights.launch import atari
from fastweights.records import read_logs

options = "--preset maze --env Catch --core delta_net --total-steps 200000 --evaluate-episodes 0"
with contextlib.redirect_stdout(io.StringIO()):
    atari.main([*options.split(), "--savedir", "runs", "--xpid", "catch"])

# %% [markdown]
# `read_logs` returns the columns as lists, with `None` for empty cells.

# %%
log = pd.DataFrame(read_logs("runs/catch/logs.csv"))
log[["step", "recent_full_game_return", "total_loss", "agent_steps_per_second"]].tail(3)

# %% [markdown]
# ## Return and losses
#
# Losses are stored as they enter the total, weighted by their costs.

# %%
figure, (top, bottom) = plt.subplots(2, 1, figsize=(6, 4.5), sharex=True, layout="constrained")
steps = log["step"] / 1000
top.plot(steps, log["recent_full_game_return"].astype(float))
top.set(ylabel="mean return of\n100 games", ylim=(-1.05, 1.05))
for name, style in {"pg_loss": "-", "baseline_loss": "--", "entropy_loss": ":"}.items():
    bottom.plot(steps, log[name].astype(float).rolling(20).mean(), style, label=name)
bottom.set(xlabel="thousand agent steps", ylabel="loss, mean of 20 updates")
bottom.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Where the time goes
#
# The columns `seconds_*` say how long each stage took in an update.

# %%
stages = log.filter(like="seconds_").astype(float)
stages.columns = stages.columns.str.removeprefix("seconds_")
share = (stages.sum() / stages.sum().sum()).sort_values()
share = share[share > 0.005]
figure, axes = plt.subplots(figsize=(6, 2.2), layout="constrained")
axes.barh(share.index, 100 * share)
axes.set(xlabel="% of the run's time")
plt.show()

# %% [markdown]
# ## Several runs
#
# Log files of several seeds fit into one table. `pd.concat` with keys keeps them apart:
#
# ```python
# paths = Path("runs").glob("*/logs.csv")
# logs = {path.parent.name: pd.DataFrame(read_logs(path)) for path in paths}
# table = pd.concat(logs, names=["run"]).reset_index("run")
# table.groupby("run")["recent_full_game_return"].last()
# ```
