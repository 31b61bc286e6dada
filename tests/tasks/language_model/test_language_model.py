"""Language models: published sizes, the output layer, positions, and a text in pieces."""

import math

import pytest
import torch
from torch import nn

from fastweights.cores import CORES
from fastweights.tasks.language_model.adaptive_softmax import AdaptiveSoftmax
from fastweights.tasks.language_model.model import LanguageModel, LanguageModelConfig

TYPES, T, B = 23, 7, 3
TINY = {"layers": 2, "width": 8, "heads": 2, "feedforward": 7}


def tiny(core: str, positions: str = "sinusoidal", ngrams: int = 1, **options) -> LanguageModel:
    sizes = {key: value for key, value in TINY.items() if key in CORES[core].options()}
    config = LanguageModelConfig(
        core=core,
        core_options=tuple((sizes | options).items()),
        positions=positions,
        ngrams=ngrams,
        ngram_rows=50,
        cutoffs=(5, 9, 20),
        span=T,
    )
    torch.manual_seed(1)
    return LanguageModel(TYPES, config).double().eval()


def test_the_adaptive_softmax_sums_to_one_and_is_what_the_loss_uses():
    softmax = tiny("lt").softmax
    hidden = 30 * torch.randn(50, 8, dtype=torch.float64)
    nn.init.normal_(softmax.bias)
    nn.init.normal_(softmax.cluster_bias)
    logs = softmax.log_probabilities(hidden)
    assert logs.shape == (50, TYPES)
    torch.testing.assert_close(logs.exp().sum(-1), torch.ones(50).double(), atol=1e-12, rtol=0)
    targets = torch.randint(TYPES, (50,))
    expected = -logs.gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(softmax(hidden, targets), expected)


def test_every_word_of_the_adaptive_softmax_has_a_bias():
    """By hand: p(w) = head(cluster) tail(w), where each logit is w . h + b."""
    softmax, hidden = AdaptiveSoftmax(9, 4, cutoffs=(3, 6)).double(), torch.randn(5, 4).double()
    for parameter in softmax.parameters():
        nn.init.normal_(parameter)
    logits = hidden @ softmax.weight.T + softmax.bias
    clusters = hidden @ softmax.cluster_weight.T + softmax.cluster_bias
    head = torch.cat([logits[:, :3], clusters], 1).softmax(1)
    tails = [head[:, 3 + i, None] * logits[:, 3 * i + 3 :][:, :3].softmax(1) for i in range(2)]
    expected = torch.cat([head[:, :3], *tails], 1).log()
    torch.testing.assert_close(softmax.log_probabilities(hidden), expected)


def test_pytorchs_adaptive_softmax_agrees_where_it_can():
    """Compare without biases in the tails and with identity projections."""
    softmax, hidden = tiny("lt").softmax.float(), torch.randn(40, 8)
    theirs = nn.AdaptiveLogSoftmaxWithLoss(8, TYPES, [5, 9, 20], div_value=1.0, head_bias=True)
    nn.init.normal_(softmax.bias[:5])
    nn.init.normal_(softmax.cluster_bias)
    with torch.no_grad():
        theirs.head.weight.copy_(torch.cat([softmax.weight[:5], softmax.cluster_weight]))
        theirs.head.bias.copy_(torch.cat([softmax.bias[:5], softmax.cluster_bias]))
        for tail, (first, end) in zip(theirs.tail, softmax.tails, strict=True):
            tail[0].weight.copy_(torch.eye(8))
            tail[1].weight.copy_(softmax.weight[first:end])
    targets = torch.randint(TYPES, (40,))
    torch.testing.assert_close(softmax(hidden, targets), -theirs(hidden, targets).output)
    torch.testing.assert_close(softmax.log_probabilities(hidden), theirs.log_prob(hidden))


def test_without_cutoffs_it_is_a_plain_softmax():
    softmax = AdaptiveSoftmax(6, 4, cutoffs=(6, 100))
    nn.init.normal_(softmax.weight)
    hidden, targets = torch.randn(9, 4), torch.randint(6, (9,))
    expected = nn.functional.cross_entropy(hidden @ softmax.weight.T, targets, reduction="none")
    torch.testing.assert_close(softmax(hidden, targets), expected)
    assert not softmax.tails
    with pytest.raises(ValueError, match="--cutoffs must be above 0 and ascend"):
        AdaptiveSoftmax(6, 4, cutoffs=(3, 2))


def test_input_and_output_share_their_weights():
    model = tiny("delta_net")
    assert {p.shape for p in model.parameters() if TYPES in p.shape} == {(TYPES, 8), (TYPES,)}
    tokens = torch.randint(TYPES, (T, B))
    loss, _ = model.loss(tokens, tokens.roll(1), None)
    (of_all,) = torch.autograd.grad(loss.sum(), [model.softmax.weight])
    with torch.no_grad():  # finite differences treat both as the same weights
        step = 1e-6 * torch.randn_like(model.softmax.weight)
        model.softmax.weight += step
        more = model.loss(tokens, tokens.roll(1), None)[0].sum()
        model.softmax.weight -= 2 * step
        less = model.loss(tokens, tokens.roll(1), None)[0].sum()
    torch.testing.assert_close((more - less) / 2, (of_all * step).sum(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("positions", ["sinusoidal", "none"])
@pytest.mark.parametrize("core", CORES)
def test_a_text_may_come_in_pieces(core, positions):
    model = tiny(core, positions, **({"window": 2 * T} if core == "transformer" else {}))
    tokens = torch.randint(TYPES, (2 * T, B))
    whole, after = model(tokens)
    state, pieces = None, []
    for piece in tokens.split([1, 4, 2 * T - 5]):
        hidden, state = model(piece, state)
        pieces.append(hidden)
    torch.testing.assert_close(torch.cat(pieces), whole, atol=1e-8, rtol=0)
    assert state.position.tolist() == after.position.tolist() == [[2 * T]] * B
    shuffled, _ = model(tokens.flip(0))
    assert not torch.allclose(shuffled[-1], whole[-1]) or positions == "none"


def test_positions_are_added_to_scaled_vectors():
    model = tiny("feedforward")
    tokens = torch.randint(TYPES, (T, 1))
    hidden, _ = model(tokens)
    x = model.softmax.weight[tokens[:, 0]] * math.sqrt(model.width)
    waves = hidden[:, 0] - x
    half = model.width // 2
    angles = 3 * 10_000 ** (-torch.arange(half, dtype=torch.float64) / half)
    torch.testing.assert_close(waves[3], torch.cat([angles.sin(), angles.cos()]))
    torch.testing.assert_close(tiny("feedforward", "none")(tokens)[0][:, 0], x)


def test_weights_begin_as_published_or_as_pytorchs():
    sizes = (("layers", 1), ("width", 64), ("heads", 4), ("feedforward", 256))
    for std, expected in ((0.02, 0.02), (0.0, 64**-0.5 / 3**0.5)):
        config = LanguageModelConfig(core="lt", core_options=sizes, initial_std=std)
        model = LanguageModel(500, config)
        wide = model.core.blocks[0].feedforward[1]
        assert wide.weight.std().item() == pytest.approx(expected, rel=0.05)
        assert bool(wide.bias.any()) == (std == 0)
        assert model.softmax.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_bad_models_are_one_line():
    for wrong, said in (
        ({"positions": "rotary"}, "unknown --positions 'rotary'; known: sinusoidal, none"),
        ({"dropout": 1.0}, r"--dropout must lie in \[0, 1\)"),
        ({"span": 0}, "--span must lie in 1 to"),
        ({"initial_std": -0.1}, r"--initial-std must lie in \[0, 1\)"),
        ({"ngrams": 0}, "--ngrams must lie in 1 to 64, not 0"),
        ({"ngrams": 2, "ngram_rows": 0}, "--ngram-rows must lie in 1 to 16,777,216, not 0"),
        ({"core": "rdm"}, "unknown core 'rdm'; known: feedforward"),
    ):
        with pytest.raises(ValueError, match=said):
            LanguageModel(TYPES, LanguageModelConfig(**{"core": "lstm"} | wrong))
