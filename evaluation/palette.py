"""Colours that colour-blind readers can distinguish, on screen and in print."""

# Okabe and Ito 2008, without yellow, which is hard to see on white paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
BLUE, ORANGE = COLOURS[:2]
