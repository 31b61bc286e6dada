"""The summary as one figure: memories x languages, what each solves, and theoretical results."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from fastweights.evaluation import BLUE, COLOURS, new_figure
from fastweights.experiments.formal_languages.theory import theory
from fastweights.experiments.rows import Row
from fastweights.tasks import LANGUAGES

# By outcome: colour of the cell and of its text.
LOOKS = {
    "generalises": ("#00325c", "white"),
    "solved": (BLUE, "white"),
    "fits": (COLOURS[4], "black"),
    "fails": ("#e8e8e8", "black"),
}
SIGNS = {"can": "+", "cannot": "\N{MINUS SIGN}"}


def matrix_figure(
    rows: Sequence[Row], states: Mapping[tuple[str, str], str], meanings: Mapping[str, str]
) -> Any:
    """Return a figure: rows of memories, columns of languages by class, a cell per pair with runs.

    A cell's colour is the outcome, its number the mean percentage of Bin1, and its sign the
    theoretical result: + the memory can, - it cannot.

    Args:
        rows: with the labels `language` and `memory`; their values are percent of Bin1.
        states: the worst outcome over seeds, by language and memory.
        meanings: the meaning of each outcome, in the order of the legend.
    """
    from matplotlib.patches import Patch, Rectangle

    languages, memories = (
        list(dict.fromkeys(row.labels[name] for row in rows)) for name in ("language", "memory")
    )
    figure = new_figure(1.4 + 0.27 * len(memories), max(6.0, 2.0 + 0.72 * len(languages)))
    axes = figure.add_subplot(xlim=(0, len(languages)), ylim=(len(memories), 0))
    for row in rows:
        pair = row.labels["language"], row.labels["memory"]
        if pair not in states:
            continue
        x, y = languages.index(pair[0]), memories.index(pair[1])
        colour, ink = LOOKS[states[pair]]
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white"))
        sign = SIGNS[theory()[pair].verdict] if pair in theory() else ""
        share = f"{row.mean:.0f}" if row.mean == 100 or row.mean < 99 else f"{row.mean:.1f}"
        text = f"{share} {sign}".strip()
        axes.text(x + 0.5, y + 0.52, text, ha="center", va="center", color=ink, fontsize=8)
    titles = [LANGUAGES[language].title.replace(" ", "\n") for language in languages]
    axes.set_xticks([i + 0.5 for i in range(len(languages))], titles, fontsize=8)
    axes.set_yticks([i + 0.5 for i in range(len(memories))], memories, fontsize=8)
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    _add_classes(axes, languages, lines=max(title.count("\n") + 1 for title in titles))
    axes.set_xlabel(
        "number: percent of Bin1, longer strings, right\ntheory: + the memory can, "
        f"{SIGNS['cannot']} it cannot, for strings of any length",
        fontsize=8,
    )
    handles = [Patch(facecolor=LOOKS[name][0], label=text) for name, text in meanings.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    return figure


def _add_classes(axes: Any, languages: Sequence[str], lines: int) -> None:
    """Write the languages' classes above their titles (up to `lines` lines), with dividers."""
    families = [LANGUAGES[language].family() for language in languages]
    ends = [i for i in range(1, len(families)) if families[i] != families[i - 1]]
    spans = list(pairwise([0, *ends, len(families)]))
    above = axes.secondary_xaxis(1.0)
    names = [families[first].replace("-", "-\n") for first, _ in spans]
    above.set_xticks([sum(span) / 2 for span in spans], names, fontsize=9, fontweight="bold")
    above.tick_params(length=0, pad=8 + 10 * lines)
    above.spines[:].set_visible(False)
    for end in ends:
        axes.axvline(end, color="black", linewidth=1)
