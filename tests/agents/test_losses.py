"""The loss terms against numbers computed by hand, and where their gradients go."""

from math import log

import pytest
import torch

from fastweights.agents.losses import (
    baseline_loss,
    entropy_loss,
    log_probability,
    policy_gradient_loss,
)

LOGITS = torch.tensor([[[0.0, log(3.0)], [log(7.0), 0.0]]])  # pi = (1/4, 3/4) and (7/8, 1/8)
ACTION = torch.tensor([[1, 1]])


def test_log_probability_of_the_action_taken():
    expected = torch.tensor([[log(3 / 4), log(1 / 8)]])
    torch.testing.assert_close(log_probability(LOGITS, ACTION), expected)


def test_logits_may_be_shifted():
    torch.testing.assert_close(
        log_probability(LOGITS + 100, ACTION), log_probability(LOGITS, ACTION), atol=1e-4, rtol=0
    )


def test_policy_gradient_loss():
    expected = torch.tensor([[-log(3 / 4) * 2.0, -log(1 / 8) * -3.0]])
    advantages = torch.tensor([[2.0, -3.0]])
    torch.testing.assert_close(
        policy_gradient_loss(log_probability(LOGITS, ACTION), advantages), expected
    )


def test_policy_gradient_pushes_by_the_advantage():
    logits = LOGITS.clone().requires_grad_()
    advantages = torch.tensor([[2.0, -3.0]])
    policy_gradient_loss(log_probability(logits, ACTION), advantages).sum().backward()
    pi = torch.tensor([[[1 / 4, 3 / 4], [7 / 8, 1 / 8]]])
    expected = advantages[..., None] * (pi - torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(logits.grad, expected)


def test_baseline_loss_is_half_the_square():
    value = torch.tensor([[1.0, -2.0]], requires_grad=True)
    loss = baseline_loss(value, torch.tensor([[4.0, -1.0]]))
    torch.testing.assert_close(loss, torch.tensor([[4.5, 0.5]]))
    (gradient,) = torch.autograd.grad(loss.sum(), value)
    torch.testing.assert_close(gradient, torch.tensor([[-3.0, -1.0]]))


def test_huber_loss_is_linear_beyond_its_delta():
    value = torch.tensor([[1.0, 0.0, 3.0]], requires_grad=True)
    loss = baseline_loss(value, torch.tensor([[2.0, 20.0, -5.0]]), huber_delta=2.0)
    torch.testing.assert_close(loss, torch.tensor([[0.5, 2 * (20 - 1.0), 2 * (8 - 1.0)]]))
    (gradient,) = torch.autograd.grad(loss.sum(), value)
    torch.testing.assert_close(gradient, torch.tensor([[-1.0, -2.0, 2.0]]))


def test_a_huber_loss_that_no_error_reaches_is_half_the_square():
    value, targets = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    equal = baseline_loss(value, targets, huber_delta=100.0)
    torch.testing.assert_close(equal, baseline_loss(value, targets), rtol=0, atol=0)


@pytest.mark.parametrize("actions", [2, 18])
def test_entropy_loss_is_lowest_where_the_policy_is_uniform(actions):
    loss = entropy_loss(torch.zeros(1, 1, actions))
    torch.testing.assert_close(loss, torch.tensor([[-log(actions)]]))


def test_entropy_loss():
    expected = [1 / 4 * log(1 / 4) + 3 / 4 * log(3 / 4), 7 / 8 * log(7 / 8) + 1 / 8 * log(1 / 8)]
    torch.testing.assert_close(entropy_loss(LOGITS), torch.tensor([expected]))
