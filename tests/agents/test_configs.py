"""Configurations refuse what a command would refuse, also from library callers."""

from dataclasses import fields, replace

import pytest

from fastweights.agents import LearnerConfig, NetworkConfig
from fastweights.agents.learner_config import RANGES

NETWORK = NetworkConfig(frame_shape=(4,), num_actions=3, core="lstm")


@pytest.mark.usefixtures("shapes_unchecked")  # whose checks of types would come first
@pytest.mark.parametrize(
    ("config", "change", "says"),
    [
        (LearnerConfig(), {"optimizer": "adamw"}, "known: rmsprop, adam; did you mean adam"),
        (LearnerConfig(), {"objective": "ppo2"}, "unknown objective 'ppo2'"),
        (LearnerConfig(), {"reduction": "average"}, "known: sum, mean"),
        (LearnerConfig(), {"reward_clipping": "soft"}, "known: abs_one, none"),
        (LearnerConfig(), {"epochs": 0}, "--epochs must be at least 1, not 0"),
        (LearnerConfig(), {"minibatches": -1}, "--minibatches must be at least 1, not -1"),
        (LearnerConfig(), {"micro_batch": -1}, "--micro-batch must be at least 0, not -1"),
        (LearnerConfig(), {"discounting": 2.0}, r"--discounting must lie in \[0, 1\], not 2.0"),
        (LearnerConfig(), {"kl_limit": -1.0}, "--kl-limit must be above 0, not -1.0"),
        (LearnerConfig(), {"huber_delta": 0.0}, "--huber-delta must be at least 1e-06, not 0.0"),
        (NETWORK, {"head_init": "ortho"}, "known: torch, orthogonal"),
    ],
)
def test_values_that_are_not_known_are_one_line(config, change, says):
    with pytest.raises(ValueError, match=says) as refused:
        replace(config, **change)
    assert "\n" not in str(refused.value)


def test_every_number_has_a_range():
    numbers = {f.name for f in fields(LearnerConfig) if type(f.default) in (int, float)}
    assert numbers | {"kl_limit", "huber_delta", "micro_batch"} == set(RANGES)
