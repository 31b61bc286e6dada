"""Published weights: actors load the newest once, and keep them until they refresh."""

import pytest
import torch

from fastweights.agents.network import Network, NetworkConfig
from fastweights.agents.weights import WeightStore


def network() -> Network:
    options = (("width", 8), ("heads", 2))
    return Network(NetworkConfig(frame_shape=(3,), num_actions=2, core="rdn", core_options=options))


def fill(network: Network, value: float):
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(value)


def holds(network: Network, value: float) -> bool:
    return all((parameter == value).all() for parameter in network.parameters())


@pytest.fixture
def learners():
    return network()


@pytest.fixture
def actors():
    actors = network()
    fill(actors, 0.0)
    return actors


def test_refresh_loads_what_was_published(learners, actors):
    store = WeightStore()
    fill(learners, 1.0)
    store.publish(learners, 3)
    assert store.version == 3
    assert store.refresh(actors, 0) == 3
    assert holds(actors, 1.0)


def test_later_updates_do_not_show_through(learners, actors):
    store = WeightStore()
    fill(learners, 1.0)
    store.publish(learners, 0)
    fill(learners, 2.0)
    store.refresh(actors, -1)
    assert holds(actors, 1.0)


def test_an_actors_changes_do_not_reach_the_store(learners, actors):
    store = WeightStore()
    fill(learners, 1.0)
    store.publish(learners, 0)
    store.refresh(actors, -1)
    fill(actors, 5.0)
    another = network()
    store.refresh(another, -1)
    assert holds(another, 1.0)


def test_only_newer_weights_are_loaded(learners, actors):
    store = WeightStore()
    fill(learners, 1.0)
    store.publish(learners, 4)
    assert store.refresh(actors, 4) == 4
    assert holds(actors, 0.0)
    store.publish(learners, 5)
    assert store.refresh(actors, 4) == 5
    assert holds(actors, 1.0)


def test_before_the_first_publication_there_is_nothing_to_load(actors):
    assert WeightStore().refresh(actors, -1) == -1
    assert holds(actors, 0.0)
