"""Rollouts: state, resets, rewards and the one shift in time, checked by counting.

Each frame of the game says (stream, episode, step), and each reward says which action it answers.
The core's state counts the rows since the last first row.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fastweights.agents.actor import Actor, Collected
from fastweights.agents.network import Network, NetworkConfig
from fastweights.agents.rollout import Rollout, align
from fastweights.cores import CORES, CoreKind
from fastweights.cores.core import Core
from fastweights.cores.feedforward import FeedforwardConfig
from fastweights.kernels.recurrence import forget

B, ACTIONS = 3, 4
LENGTHS = ((5, 3), (1, 2, 7), (4,))  # of each stream's episodes, repeated
EPISODE_STREAM = 100  # an episode's number is 100 * stream + episode


class CountingCut(NamedTuple):
    streams: np.ndarray
    frame: np.ndarray


class CountingRow(NamedTuple):
    frame: np.ndarray
    reward: np.ndarray
    is_first: np.ndarray
    episodes: tuple
    lives: tuple
    cut_off: CountingCut | None = None


class CountingEnvironments:
    """Episodes of an even number are cut off, and those of an odd number end by themselves."""

    num_envs = B

    def reset(self) -> CountingRow:
        self.episode, self.time = np.zeros(B, int), np.zeros(B, int)
        return CountingRow(self._frame(), np.zeros(B, np.float32), np.ones(B, bool), (), ())

    def step(self, action: np.ndarray) -> CountingRow:
        self.time = self.time + 1
        lengths = [LENGTHS[b][self.episode[b] % len(LENGTHS[b])] for b in range(B)]
        over = self.time == lengths
        ended = tuple(EPISODE_STREAM * b + self.episode[b] for b in np.flatnonzero(over))
        cut = np.flatnonzero(over & (self.episode % 2 == 0))
        cut_off = CountingCut(cut, self._frame()[cut]) if len(cut) else None
        self.episode, self.time = self.episode + over, np.where(over, 0, self.time)
        reward = answer(np.arange(B), action)
        lives = tuple(-one for one in ended)
        return CountingRow(self._frame(), reward, over, ended, lives, cut_off)

    def _frame(self) -> np.ndarray:
        return np.stack([np.arange(B), self.episode, self.time], 1).astype(np.float32)


def answer(stream, action):
    """Return the reward for an action; it tells the stream and the action."""
    return np.asarray((10 * stream + action + 1) / 100, np.float32)


class Count(NamedTuple):
    rows: Float[Tensor, "B 1"]


class CountingCore(Core):
    """y is x followed by the number of rows so far, including this one."""

    equation, source = "n_t = n_(t-1) + 1;  y_t = x_t, n_t", "a child"

    def __init__(self, input_size: int, config: FeedforwardConfig):
        super().__init__()
        self.input_size, self.output_size = input_size, input_size + 1
        self.one = torch.nn.Parameter(torch.ones(()))

    def initial_state(self, batch_size: int) -> Count:
        return Count(self.one.new_zeros(batch_size, 1))

    def step(self, x: Float[Tensor, "B D"], state: Count):
        rows = state.rows + self.one
        return torch.cat([x, rows], -1), Count(rows)

    def unroll(self, x: Float[Tensor, "T B D"], state: Count, is_first: Bool[Tensor, "T B"]):
        ys = []
        for x_t, first in zip(x, is_first, strict=True):
            y, state = self.step(x_t, forget(state, first))
            ys.append(y)
        return torch.stack(ys), state


@pytest.fixture(autouse=True)
def _counting_core(monkeypatch):
    kind = CoreKind(CountingCore, FeedforwardConfig(), "", "", "", has_fast_weights=False)
    monkeypatch.setitem(CORES, "counting", kind)


def network(core: str) -> Network:
    tiny = {"layers": 1, "width": 8, "heads": 2, "feedforward": 8}
    options = tuple((key, tiny[key]) for key in CORES[core].options() if key in tiny)
    config = NetworkConfig(
        frame_shape=(3,),
        num_actions=ACTIONS,
        core=core,
        core_options=options,
        feed_last_action=True,
    )
    return Network(config).double()


def play(core: str = "counting", lengths=(4, 1, 6, 5, 9)) -> tuple[Network, list[Collected]]:
    """Return consecutive rollouts; episodes end inside them and at their first and last rows."""
    model = network(core)
    actor = Actor(model, CountingEnvironments(), generator=torch.Generator().manual_seed(0))
    return model, [actor.collect(length, values=True) for length in lengths]


def rollouts() -> list[Rollout]:
    return [collected.rollout for collected in play()[1]]


def test_the_games_end_inside_and_at_both_edges_of_the_rollouts():
    played = rollouts()
    assert any(r.is_first[0].any() for r in played[1:])
    assert any(r.is_first[-1].any() for r in played)
    assert any(r.is_first[1:-1].any() for r in played)
    assert any((r.is_first[:-1] & r.is_first[1:]).any() for r in played)  # an episode of one step


def test_frames_count_on_from_row_to_row():
    for r in rollouts():
        assert torch.equal(r.is_first, r.frame[..., 2] == 0)
        assert (r.frame[..., 0] == torch.arange(B)).all()
        episode, time = r.frame[..., 1], r.frame[..., 2]
        goes_on = ~r.is_first[1:]
        assert torch.equal(time[1:][goes_on], time[:-1][goes_on] + 1)
        assert torch.equal(episode[1:] - episode[:-1], r.is_first[1:].float())


def test_the_next_reward_answers_the_action():
    for r in rollouts():
        expected = answer(np.arange(B), r.action.numpy())
        np.testing.assert_array_equal(r.reward[1:].numpy(), expected)


def test_the_last_action_is_the_one_before():
    played = rollouts()
    assert (played[0].last_action[0] == 0).all()
    for r in played:
        assert torch.equal(r.last_action[1:], r.action)


def test_the_last_row_is_the_next_rollouts_first():
    played = rollouts()
    for before, after in pairwise(played):
        for name in ("frame", "reward", "is_first", "last_action"):
            assert torch.equal(getattr(before, name)[-1], getattr(after, name)[0])


def test_the_initial_state_is_the_core_before_row_zero():
    played = rollouts()
    assert (played[0].initial_state.rows == 0).all()
    for r in played[1:]:
        goes_on = ~r.is_first[0]
        assert goes_on.any()
        assert torch.equal(r.initial_state.rows[goes_on, 0], r.frame[0, goes_on, 2].double())
        assert not r.initial_state.rows.requires_grad


def test_the_core_counts_what_the_game_counts():
    model, played = play()
    for r in (collected.rollout for collected in played):
        x = torch.zeros(*r.is_first.shape, model.core.input_size).double()
        y, _ = model.core.unroll(x, r.initial_state, r.is_first)
        assert torch.equal(y[..., -1], r.frame[..., 2].double() + 1)


@pytest.mark.parametrize("core", [*CORES, "counting"])
def test_learner_sees_the_actors_logits_row_by_row(core):
    model, played = play(core)
    for r in (collected.rollout for collected in played):
        output, _ = model(r.frame, r.reward, r.is_first, r.last_action, r.initial_state)
        T = len(r.action)
        torch.testing.assert_close(output.policy_logits[:T], r.policy_logits, atol=1e-12, rtol=0)
        torch.testing.assert_close(output.value.detach(), r.value, atol=1e-12, rtol=0)


def test_reading_the_last_row_for_its_value_changes_nothing():
    """Neither later actions nor the state that is carried on depend on it."""
    played = []
    for values in (False, True):
        torch.manual_seed(3)
        actor = Actor(network("rdn"), CountingEnvironments())
        played.append([actor.collect(4, values=values).rollout for _ in range(3)])
    for one, other in zip(*played, strict=True):
        assert len(one.value) == 0 and len(other.value) == 5
        assert torch.equal(one.action, other.action)
        assert torch.equal(one.frame, other.frame)
        assert torch.equal(one.policy_logits, other.policy_logits)
        for state, same in zip(one.initial_state[0], other.initial_state[0], strict=True):
            assert torch.equal(state, same)


def test_align_puts_each_action_beside_its_reward():
    for r in rollouts():
        t = align(r, 0.9)
        assert t.reward.shape == t.discount.shape == r.action.shape
        assert torch.equal(t.action, r.action)
        assert torch.equal(t.policy_logits, r.policy_logits)
        np.testing.assert_array_equal(t.reward.numpy(), answer(np.arange(B), t.action.numpy()))


def test_align_discounts_by_whether_the_action_ended_its_episode():
    for r in rollouts():
        episode = r.frame[..., 1]
        expected = torch.where(episode[1:] == episode[:-1], 0.9, 0.0)
        torch.testing.assert_close(align(r, 0.9).discount, expected)


def test_align_discounts_what_follows_an_episode_that_was_cut_off():
    for r in rollouts():
        torch.testing.assert_close(align(r, 0.9).later, 0.9 * r.cut_value)


@pytest.mark.parametrize("core", ["feedforward", "lstm", "rdn", "delta_rnn", "counting"])
def test_the_cut_value_is_that_of_the_episode_played_on(core):
    """Each episode is unrolled from its beginning, with the frame that followed its last action."""
    model, played = play(core)
    rows = [r.rollout for r in played]
    whole = {
        name: torch.cat([getattr(r, name)[:-1] for r in rows] + [getattr(rows[-1], name)[-1:]])
        for name in ("frame", "reward", "is_first", "last_action")
    }
    cut_values = torch.cat([r.cut_value for r in rows])
    assert not cut_values.requires_grad
    for b in range(B):
        begins = [*whole["is_first"][:, b].nonzero()[:, 0].tolist()]
        for start, stop in pairwise(begins):
            episode = whole["frame"][start, b, 1]
            assert not cut_values[start : stop - 1, b].any()
            if episode % 2:
                assert cut_values[stop - 1, b] == 0
                continue
            # The next row has the reward and action of the old episode, and the new one's frame.
            row = {
                name: tensor[start : stop + 1, b : b + 1].clone() for name, tensor in whole.items()
            }
            row["frame"][-1, 0] = torch.tensor([b, episode, stop - start])
            row["is_first"][-1] = False
            output, _ = model(*row.values(), model.initial_state(1))
            torch.testing.assert_close(
                cut_values[stop - 1, b], output.value[-1, 0].detach(), atol=1e-12, rtol=0
            )
            assert output.value[-1, 0] != 0


def test_columns_slice_everything():
    model, played = play("rdn")
    r = played[3].rollout
    part = r.columns(1, 3)
    for name in Rollout._fields[:-1]:
        assert torch.equal(getattr(part, name), getattr(r, name)[:, 1:3])
    for cut, whole in zip(part.initial_state[0], r.initial_state[0], strict=True):
        assert torch.equal(cut, whole[1:3])
    output, _ = model(part.frame, part.reward, part.is_first, part.last_action, part.initial_state)
    T = len(part.action)
    torch.testing.assert_close(output.policy_logits[:T], part.policy_logits, atol=1e-12, rtol=0)


def test_what_ended_is_collected_once_and_in_order():
    played = play()[1]
    episodes = [one for collected in played for one in collected.episodes]
    lives = [one for collected in played for one in collected.lives]
    assert lives == [-one for one in episodes]
    last_row = played[-1].rollout.frame[-1]
    for b in range(B):
        of_stream = [e - EPISODE_STREAM * b for e in episodes if e // EPISODE_STREAM == b]
        assert of_stream == list(range(int(last_row[b, 1])))


def test_a_rollout_is_not_written_to_by_the_next():
    actor = Actor(network("rdn"), CountingEnvironments())
    first = actor.collect(4).rollout
    tensors = [*first[:-1], *first.initial_state[0]]
    copies = [tensor.clone() for tensor in tensors]
    actor.collect(4)
    assert all(map(torch.equal, tensors, copies))
