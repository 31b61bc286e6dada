"""A run's text: finding it, converting it to numbers, and describing it."""

from pathlib import Path

from rich.progress import Progress

from fastweights.experiments.language_model.options import LanguageOptions
from fastweights.host import UserError, expanded, read_object
from fastweights.tasks.language_model import (
    PYTHON_DOCS,
    SPLITS,
    Corpus,
    Source,
    Vocabulary,
    counts_comparison,
    find_source,
    open_corpus,
    python_docs_source,
    vocabulary_from_plain,
)

VOCABULARY = "vocabulary.json"  # file of a run and of an export
GETTING_IT = (
    'where there is a network, python -c "from datasets import load_dataset; '
    "load_dataset('Salesforce/wikitext', 'wikitext-103-v1').save_to_disk('wikitext-103')\" "
    "(pip install datasets) fetches WikiText-103 for --data wikitext-103"
)


def text_of(options: LanguageOptions) -> Corpus:
    """Return the text selected by `options`, as numbers; raise a one-line `UserError`."""
    source = _source(options)
    folder = expanded(options.cache or options.savedir / "texts")
    with Progress(transient=True) as progress:
        bar = progress.add_task("reading", total=None)

        def tick(what: str, lines: int) -> None:
            progress.update(bar, description=f"{what}: {lines:,} lines")

        return open_corpus(source, options.cut, folder, tick)


def described(text: Corpus) -> list[str]:
    """Return lines about the text, with its counts compared to the published ones."""
    lines = [f"text: {text.place} ({text.form}), {text.digest}"]
    name = text.published_name
    if name is None:
        sizes = ", ".join(f"{split} {len(text.splits[split].ids):,}" for split in SPLITS)
        unit = text.vocabulary.kind
        return [*lines, f"{unit}: {sizes}; {text.vocabulary.size:,} types; no published counts"]
    compared, same = counts_comparison(name, text.counts)
    if not same:
        compared.append(
            f"warning: the counts differ from those published for {name}, so perplexities are not "
            "comparable to the paper's"
        )
    return lines + compared


def read_vocabulary(folder: Path) -> Vocabulary:
    """Return the vocabulary of a run or an export; raise a one-line `UserError`."""
    path = folder / VOCABULARY
    try:
        return vocabulary_from_plain(read_object(path))
    except FileNotFoundError as error:
        raise UserError(f"{folder} has no {VOCABULARY}: it is not a language model") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}): copy it from the run's text") from error


def check_fits(text: Corpus, vocabulary: Vocabulary, folder: Path) -> None:
    """Raise a one-line `UserError` if the text's vocabulary is not the model's."""
    if text.vocabulary.plain() != vocabulary.plain():
        raise UserError(
            f"--data {text.place} has another vocabulary ({text.vocabulary.size:,} "
            f"{text.vocabulary.kind}) than the model in {folder} ({vocabulary.size:,} "
            f"{vocabulary.kind}): give the text that the model was trained on"
        )


def _source(options: LanguageOptions) -> Source:
    if options.data is None:
        raise UserError(
            "there is no text: give one with --data (a folder, file or archive; "
            f"docs/language_models.md lists the forms), or use --preset small, which needs none; "
            f"{GETTING_IT}"
        )
    if options.data == PYTHON_DOCS:
        return python_docs_source(options.held_out)
    return find_source(Path(options.data), options.held_out)
