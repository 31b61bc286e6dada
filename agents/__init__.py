"""The single-threaded agent: rollout, network, actor, objectives, learner."""

from fastweights.agents.actor import Actor, Collected, Decision
from fastweights.agents.learner import Learner
from fastweights.agents.learner_config import LearnerConfig, unread, without_unread
from fastweights.agents.network import Network, NetworkConfig, NetworkOutput
from fastweights.agents.objectives import OBJECTIVES
from fastweights.agents.rollout import Rollout
from fastweights.agents.stem import STEMS, ImageStem, PooledConv2d, ResidualUnit, build_stem
from fastweights.agents.weights import WeightStore

__all__ = [
    "OBJECTIVES",
    "STEMS",
    "Actor",
    "Collected",
    "Decision",
    "ImageStem",
    "Learner",
    "LearnerConfig",
    "Network",
    "NetworkConfig",
    "NetworkOutput",
    "PooledConv2d",
    "ResidualUnit",
    "Rollout",
    "WeightStore",
    "build_stem",
    "unread",
    "without_unread",
]
