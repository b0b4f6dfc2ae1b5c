"""Records of a comparison: what is said of each tensor, and of all."""

from __future__ import annotations

from kernel_assay.corpus.model.base import Record


class Spot(Record):
    """One place, and what stands there."""

    index: tuple[int, ...]
    a: int | float
    b: int | float


class Row(Record):
    """The scores of one choice, a row of logits."""

    index: tuple[int, ...]
    a: int
    """The first choice of A, of B, and by how much A preferred it to its second one."""
    b: int
    lead: float
    kl: float


class Rows(Record):
    """Logits: a tensor's last axis as the scores of one choice."""

    count: int
    flips: int
    """Rows whose first choice is another one."""
    mean_kl: float
    """KL(softmax A, softmax B) in nats, over all rows; inf if a row has NaN on one side."""
    max_kl: float
    worst: tuple[Row, ...]
    """Flips first, then by their KL."""


class Distance(Record):
    """Numbers for two tensors of one shape, as oracles.judging.measure has them."""

    ulp_of: str
    """The type whose steps are counted, into which both sides are rounded for that: the narrower one."""
    relative_to: str
    """The side that relative numbers are relative to: A, or B where B has the finer type."""
    differing: int
    """Elements that are not equal in that type, those of another class among them."""
    max_ulp: int
    ulp_histogram: tuple[int, ...]
    """Elements by steps: 0, 1, 2, 3-4, 5-8, ..."""
    nmse: float
    cosine: float
    psnr: float
    max_abs: float
    mean_abs: float
    max_rel: float
    mean_rel: float
    classes: dict[str, int]
    """Elements of two classes, by what they are."""
    unlike: int
    """Elements of two classes that no rounding explains: they never agree."""
    first: Spot | None = None
    """The first element that differs by more than is allowed."""
    worst: Spot | None = None
    """The first one of another class, or the one with the most steps."""
    largest: Spot | None = None
    """The one with the largest absolute difference."""


class Compared(Record):
    """One tensor of both sides."""

    name: str
    shape: tuple[int, ...] = ()
    dtypes: tuple[str, str] = ("", "")
    """As stored in A and in B."""
    elements: int = 0
    trouble: str = ""
    """Words for why it does not agree."""
    distance: Distance | None = None
    baseline: Distance | None = None
    """With a truth: how far A is from it, where distance says how far B is."""
    rho: float | None = None
    """With a budget: how much of it B's errors are, and A's; 1 is the line."""
    baseline_rho: float | None = None
    baseline_trouble: str = ""
    """With a budget: words for why A is not within it; that does not decide."""
    rows: Rows | None = None

    @property
    def agrees(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.trouble


class Comparison(Record):
    """All tensors of two files or folders, those that do not agree first."""

    a: str
    b: str
    truth: str = ""
    budget_of: str = ""
    """The op by whose budget its outputs were judged."""
    asked: str
    """What it takes to agree."""
    agrees: bool
    bytes: int
    """Bytes that were read."""
    tensors: tuple[Compared, ...]
