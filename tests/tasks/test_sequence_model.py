"""Sequence models: the paper's sizes, and answers that depend only on what was read before.

Sizes are from Irie et al. 2021, appendix B.2 and table 6. Where the paper rounds, they are counted
by hand from its architecture.
"""

import pytest
import torch
from torch import nn

from fastweights.tasks import CodeExecution
from fastweights.tasks.sequence_model import ModelConfig, SequenceModel

FIVE = CodeExecution(variables=5)
WIDE = {"layers": 4, "width": 256, "heads": 16, "feedforward": 1024}
DEEP = {"layers": 8, "width": 128, "heads": 8, "feedforward": 256}


def build(core: str, embedding: int, **options) -> SequenceModel:
    config = ModelConfig(core=core, core_options=tuple(options.items()), embedding=embedding)
    return SequenceModel(len(FIVE.words), len(FIVE.answers), config)


def count(model: SequenceModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("core", "sizes", "millions"),
    [
        *((core, WIDE, 3.2) for core in ("transformer", "lt", "delta_net", "rdn")),
        ("delta_rnn", WIDE, 3.7),
        *((core, DEEP, 1.1) for core in ("transformer", "lt", "delta_net", "rdn")),
        ("delta_rnn", DEEP, 1.3),
    ],
)
def test_sizes_are_the_papers(core, sizes, millions):
    model = build(core, sizes["width"], embed="none", **sizes)
    assert round(count(model) / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("core", "programmed", "total"),
    [
        ("transformer", 3 * 256, 3_167_770),
        ("lt", 3 * 256, 3_167_770),
        ("delta_net", 3 * 256 + 16, 3_184_154),
    ],
)
def test_the_count_by_hand(core, programmed, total):
    """Count embedding, 4 x (slow net, projection, norms, feed-forward), output."""
    layer = 256 * programmed + 256 * 256 + 4 * 256 + 2 * 256 * 1024 + 1024 + 256
    expected = 24 * 256 + 4 * layer + 256 * 26 + 26
    assert count(build(core, 256, embed="none", **WIDE)) == expected == total


@pytest.mark.parametrize(("width", "parameters"), [(256, 405_018), (512, 1_331_226)])
def test_the_lstms_sizes_are_the_papers(width, parameters):
    assert count(build("lstm", 128, width=width)) == parameters


@pytest.mark.parametrize("core", ["lstm", "rdn"])
def test_no_answer_depends_on_later_words_or_on_other_sequences(core):
    model = build(core, 16, width=16)
    tokens = torch.randint(len(FIVE.words), (7, 3))
    everywhere = torch.ones(7, 3, dtype=torch.bool)
    answers = model(tokens, everywhere).unflatten(0, (7, 3))
    changed = tokens.clone()
    changed[4:, 0] = (changed[4:, 0] + 1) % len(FIVE.words)
    after = model(changed, everywhere).unflatten(0, (7, 3))
    torch.testing.assert_close(after[:4], answers[:4])
    torch.testing.assert_close(after[:, 1:], answers[:, 1:])
    assert not torch.isclose(after[4:, 0], answers[4:, 0]).all()


def test_only_what_is_asked_is_answered():
    model = build("lstm", 8, width=8)
    tokens, asked = torch.randint(5, (4, 2)), torch.zeros(4, 2, dtype=torch.bool)
    asked[1, 1] = asked[3, 0] = True
    everywhere = model(tokens, torch.ones_like(asked)).unflatten(0, (4, 2))
    expected = torch.stack([everywhere[1, 1], everywhere[3, 0]])
    torch.testing.assert_close(model(tokens, asked), expected)


@pytest.mark.parametrize("decoder", [0, 6])
def test_the_decoder_by_hand(decoder):
    """Without a decoder, logits are W y + b; with a decoder of n units, W relu(V y + c) + b."""
    options = (("width", 4),)
    config = ModelConfig(core="lstm", core_options=options, embedding=3, decoder=decoder)
    model = SequenceModel(5, 3, config).double()
    tokens, asked = torch.randint(5, (7, 2)), torch.rand(7, 2) < 0.7
    embedded = model.embedding.weight[tokens]
    y, _ = model.core.unroll(embedded, model.core.initial_state(2), torch.zeros_like(asked))
    if decoder:
        V, c = (part for name, part in model.named_parameters() if name.startswith("hidden"))
        assert V.shape == (decoder, 4)
        y = torch.einsum("tbe,de->tbd", y, V) + c
        assert (y < 0).any() and (y > 0).any()
        y = y.where(y > 0, 0.0)
    W, b = (part for name, part in model.named_parameters() if name.startswith("output"))
    expected = (torch.einsum("tbd,ad->tba", y, W) + b)[asked]
    torch.testing.assert_close(model(tokens, asked), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("core", ["lstm", "delta_net"])
def test_dropout_acts_in_training_only(core):
    inside = {"dropout": 0.5} if core == "delta_net" else {}
    options = tuple({"width": 16, **inside}.items())
    outside = 0.0 if inside else 0.5
    config = ModelConfig(core=core, core_options=options, embedding=16, dropout=outside)
    model = SequenceModel(5, 3, config)
    tokens, asked = torch.randint(5, (4, 2)), torch.ones(4, 2, dtype=torch.bool)
    assert not torch.equal(model(tokens, asked), model(tokens, asked))
    model.eval()
    assert torch.equal(model(tokens, asked), model(tokens, asked))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_dropout_is_where_the_paper_has_it(norm, monkeypatch):
    """Dropout acts once on words and on answers, and on three parts of each block.

    These are the block's memory, inner layer and outer layer.
    """
    dropped, drop = [], nn.Dropout.forward

    def counted(self, x):
        dropped.append(tuple(x.shape))
        return drop(self, x)

    monkeypatch.setattr(nn.Dropout, "forward", counted)
    options = {"width": 16, "heads": 2, "layers": 2, "feedforward": 24, "norm": norm}
    model = build("delta_net", 12, **options)
    model(torch.zeros(4, 3, dtype=torch.long), torch.ones(4, 3, dtype=torch.bool))
    block = [(4, 3, 16), (4, 3, 24), (4, 3, 16)]
    assert dropped == [(4, 3, 12), *block, *block, (12, 16)]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"core": "lstm", "embedding": 0}, "--embedding must lie in 1 to"),
        ({"core": "lstm", "dropout": 1.0}, "--dropout must lie in"),
        ({"core": "rdn", "core_options": (("embed", "none"),), "embedding": 7}, "size 7 must be"),
        ({"core": "rdn", "core_options": (("embed", "conv"),)}, "known: linear, none"),
    ],
)
def test_what_cannot_be_built(config, says):
    with pytest.raises(ValueError, match=says):
        SequenceModel(5, 3, ModelConfig(**config))
