"""The exchange of reports beside the learners' sums."""

import torch

from fastweights.training.exchange import GAME, LAG, Exchange
from fastweights.training.replicas import Replicas


def test_reports_are_heard_once_however_often_an_update_sums():
    exchange, reports = Exchange(Replicas()), [[GAME, 3.0, 9, 36], [LAG, 1, 0, 0]]
    for _ in range(2):
        exchange.tell(reports)
        assert exchange.heard == []
        for _ in range(3):
            exchange.sum([torch.zeros(2)])
            assert exchange.heard == reports
