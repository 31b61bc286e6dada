"""Where actors find the newest weights: one small process, which knows no torch."""

from ray import ObjectRef

Offer = tuple[int, list[ObjectRef]]  # a version, and its weights, not fetched yet


class Board:
    """Holds the newest offer. Where its process dies, it begins anew with none."""

    def __init__(self) -> None:
        self._offer: Offer | None = None

    def post(self, offer: Offer) -> None:
        """Takes the place of what was there."""
        self._offer = offer

    def newer_than(self, version: int) -> Offer | None:
        """The newest offer, where it is newer."""
        return self._offer if self._offer and self._offer[0] > version else None
