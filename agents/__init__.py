"""Learning without threads: rollout, network, actor, objectives, learner."""
