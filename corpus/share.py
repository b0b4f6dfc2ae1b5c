"""How much of a large output was judged, and by what."""

from __future__ import annotations

from corpus.record import Record

_WAYS = {
    "full": "judged by the oracle",
    "sampled": "judged by the oracle, as a sample",
    "algebra": "held to the algebra of a product",
    "peer": "compared with a peer",
}


class Share(Record):
    """Elements of one output, by what looked at them; an element may be counted under several."""

    output: str
    of: int
    """Elements of the output."""
    full: int = 0
    """Judged by the ordinary oracle, all at once."""
    sampled: int = 0
    """Judged by the ordinary oracle, in parts that were chosen beforehand, or because something spoke against them."""
    algebra: int = 0
    """In rows whose sums with random signs were checked (Freivalds)."""
    peer: int = 0
    """Compared with what another subject gave; the suspicious ones were then judged."""

    def plus(self, other: Share) -> Share:
        """Both, of the same output; elements that both looked at are counted twice, but never more than there are."""
        ways = {way: min(self.of, getattr(self, way) + getattr(other, way)) for way in _WAYS}
        return Share(output=self.output, of=self.of, **ways)

    @property
    def text(self) -> str:
        """One line for people, e.g. `of 16777216 elements of out, 4096 judged by the oracle, as a sample`."""
        told = [f"{getattr(self, way)} {said}" for way, said in _WAYS.items() if getattr(self, way)]
        return f"of {self.of} elements of {self.output}, {', '.join(told) or 'none was judged'}"
