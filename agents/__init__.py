"""IMPALA without threads: rollout, stem, network, actor, V-trace, losses, learner, weights."""
