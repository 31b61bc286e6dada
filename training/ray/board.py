"""The board where actors find the newest weights: a small process without torch."""

from ray import ObjectRef

Offer = tuple[int, list[ObjectRef]]  # a version, and references to its weights


class Board:
    """The newest offer. If its process dies, it restarts empty."""

    def __init__(self) -> None:
        self._offer: Offer | None = None

    def post(self, offer: Offer) -> None:
        """Replace the offer."""
        self._offer = offer

    def newer_than(self, version: int) -> Offer | None:
        """Return the newest offer if it is newer than `version`."""
        return self._offer if self._offer and self._offer[0] > version else None
