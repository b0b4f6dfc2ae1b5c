"""The share of a large output that was judged, and by what."""

from __future__ import annotations

from kernel_assay.corpus.model.base import Record

_WAYS = {
    "full": "judged by the oracle",
    "sampled": "judged by the oracle, as a sample",
    "algebra": "held to the algebra of a product",
    "peer": "compared with a peer",
    "reference": "compared with a float64 reference",
}


class Apart(Record):
    """Distance of one output from another of the same case, at all elements; judging.measure defines the numbers."""

    peer: str = ""
    """Name of the subject that left the other; empty: it is a float64 reference."""
    ulps: int
    """The most representable steps that two numbers are apart; of the reference when it is rounded."""
    at: tuple[int, ...] | None = None
    """Index of the first element that is so far off; None: of none."""
    nmse: float
    cosine: float
    psnr: float
    """In dB."""
    max_abs: float
    max_rel: float
    nonfinite: int = 0
    """Elements that are NaN or Inf."""
    wanted_nonfinite: int = 0
    """Elements that are so in the other."""

    @property
    def text(self) -> str:
        """Words, e.g. `max ULP 1 at [3, 4], NMSE 3.1e-16, cosine 1, PSNR 151 dB, max abs 2e-07, max rel 1e-07`."""
        where = f" at [{', '.join(map(str, self.at))}]" if self.at and self.ulps else ""
        told = [f"max ULP {self.ulps}{where}", f"NMSE {self.nmse:.2g}", f"cosine {self.cosine:.9g}"]
        told += [f"PSNR {self.psnr:.4g} dB", f"max abs {self.max_abs:.2g}", f"max rel {self.max_rel:.2g}"]
        if self.nonfinite or self.wanted_nonfinite:
            told.append(f"NaN or Inf {self.nonfinite}, there {self.wanted_nonfinite}")
        return ", ".join(told)


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
    reference: int = 0
    """Compared with what the op's formula gives in float64; the suspicious ones were then judged."""
    apart: tuple[Apart, ...] = ()
    """How far it was from those that it was compared with, where that was measured."""

    def plus(self, other: Share) -> Share:
        """Both, of the same output; elements that both looked at are counted twice, but never more than there are."""
        ways = {way: min(self.of, getattr(self, way) + getattr(other, way)) for way in _WAYS}
        known = {one.peer for one in self.apart}
        apart = (*self.apart, *(one for one in other.apart if one.peer not in known))
        return Share(output=self.output, of=self.of, apart=apart, **ways)

    @property
    def text(self) -> str:
        """One line for people, e.g. `of 16777216 elements of out, 4096 judged by the oracle, as a sample`."""
        told = [f"{getattr(self, way)} {self._words(way)}" for way in _WAYS if getattr(self, way)]
        return f"of {self.of} elements of {self.output}, {', '.join(told) or 'none was judged'}"

    def _words(self, way: str) -> str:
        """Words for what was done, and what came of it."""
        of = {"peer": True, "reference": False}.get(way)
        apart = [one for one in self.apart if bool(one.peer) is of]
        told = (f"compared with {one.peer or 'a float64 reference'} ({one.text})" for one in apart)
        return " and ".join(told) or _WAYS[way]
