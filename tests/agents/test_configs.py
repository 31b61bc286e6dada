"""Configurations refuse what a command would refuse, also from library callers."""

from dataclasses import replace

import pytest

from fastweights.agents import LearnerConfig, NetworkConfig

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
        (NETWORK, {"head_init": "ortho"}, "known: torch, orthogonal"),
    ],
)
def test_values_that_are_not_known_are_one_line(config, change, says):
    with pytest.raises(ValueError, match=says) as refused:
        replace(config, **change)
    assert "\n" not in str(refused.value)
