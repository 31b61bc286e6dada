"""Check that a Matplotlib figure cuts off no text, and return its words."""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


def words_in(figure: Figure) -> list[str]:
    """Return every visible text as one line; check that everything drawn lies in the canvas."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    box = figure.get_tightbbox(canvas.get_renderer())  # in inches, without invisible ticks
    assert box.x0 >= 0 and box.y0 >= 0, box
    assert box.x1 <= figure.get_figwidth() and box.y1 <= figure.get_figheight(), box
    texts = [text for text in figure.findobj(Text) if text.get_visible()]
    return [words for text in texts if (words := " ".join(text.get_text().split()))]
