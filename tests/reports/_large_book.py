"""A book as large as a long night makes one, out of nothing: for tests of the page and for scripts/bench/report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernel_assay.corpus.model.campaign import Campaign, Moment, Space, Statistics
from kernel_assay.corpus.model.case import Case, Fill, Special, TensorRecipe
from kernel_assay.corpus.model.findings import (
    Element,
    Environment,
    Event,
    Exhibit,
    Finding,
    Opinion,
    Picture,
    State,
    Variant,
)
from kernel_assay.corpus.model.kinds import Kind
from kernel_assay.corpus.model.subject import Numerics, Subject
from kernel_assay.corpus.model.verdict import Measurement, Signature, Verdict
from kernel_assay.reports.book import Book, in_order

HERE = Environment(
    python="3.11.7",
    platform="Linux-6.1-x86_64-with-glibc2.36",
    machine="x86_64",
    processor="A Processor of 64 Cores avx2 avx512f avx512_bf16 amx_bf16",
    packages={"hypothesis": "6.170.15", "ml_dtypes": "0.6.0", "numba": "0.68.1", "numpy": "2.4.6", "torch": "2.13.0"},
)
OPS = {
    "convert": ("numpy_bits", "numpy_float32", "torch_copy", "torch_to"),
    "embedding": ("numpy_take", "torch_embedding", "torch_gather", "torch_index_select"),
    "gemm": ("numpy_float32", "numpy_outer", "torch_addmm", "torch_bmm", "torch_einsum", "torch_matmul"),
    "layernorm": ("numpy_float32", "numpy_welford", "torch_composed", "torch_layer_norm", "fused_layernorm"),
    "rmsnorm": ("numpy_float32", "torch_composed", "torch_rms_norm", "fused_rmsnorm"),
    "rope": ("numpy_float32", "torch_rotate_half", "torch_slices", "torch_stack", "fused_rope"),
    "silu": ("numpy_float32", "torch_sigmoid", "torch_silu", "fused_silu"),
    "softmax": ("numpy_float32", "numpy_online", "torch_exp_sum", "torch_softmax", "fused_softmax"),
}
DTYPES = ("float32", "float16", "bfloat16", "float64")
SHAPES = (
    *("empty", "one", "small-aligned", "small-by-one", "small-tail", "medium-aligned", "medium-by-one"),
    *("medium-tail", "large-aligned", "large-by-one", "large-tail"),
)
LAYOUTS = ("contiguous", "offset_one", "offset_room", "row_gaps", "element_gaps", "transposed", "broadcast")
VALUES = (
    *("zeros", "ones", "small_integers", "uniform", "positive", "normal", "sparse", "wide", "exact_integers"),
    *("powers_of_two", "unit_steps", "constant_rows", "ties", "offset", "cancellation", "huge_row", "masked_rows"),
    *("log_uniform", "raw_bits", "0", "subnormal", "max_subnormal", "min_normal", "max", "inf", "nan", "nan_payload"),
)
GOALS = (
    *("empty_tensor", "single_element", "tile_tail_by_one", "long_axis", "equal_axes", "misaligned", "strided"),
    *("broadcast", "nan_input", "inf_input", "subnormal_input", "largest_finite_input", "any_bit_pattern"),
    *("cancellation", "independent_values", "law_tested", "budget_used", "side_by_side"),
)
CHECKS = (
    "torch.testing.assert_close, defaults",
    "np.allclose, defaults",
    "allclose rtol=1e-2 atol=1e-2",
    "cosine >= 0.999",
    "NMSE <= 5e-4",
    "PSNR >= 40 dB",
)
PATTERNS = ("tail", "rows", "all", "single", "scattered", "block")
TRACEBACK = """Traceback (most recent call last):
  File "{op}/{name}.py", line 41, in run
    return _tiles(x, out, step=32)
  File "{op}/{name}.py", line 27, in _tiles
    out[row, start : start + step] = accumulate[: x.shape[1] - start]
ValueError: could not broadcast input array from shape (31,) into shape (<32>,)
"""


@dataclass
class Maker:
    """Everything that is drawn comes from one seed."""

    random: Random

    def subjects(self) -> list[Subject]:
        made = [self._subject(op, name) for op, names in OPS.items() for name in names]
        return made + [self._planted(op, kind) for op in OPS for kind in ("mismatch", "nonfinite", "unwritten")]

    def _subject(self, op: str, name: str) -> Subject:
        fast = {"exp": "fast", "intermediates": {"p": "bfloat16"}} if "fused" in name else {}
        backend = name.partition("_")[0].replace("fused", "triton")
        return Subject(
            op=op,
            name=name,
            backend=backend,
            path=f"kernels/{op}/{name}.py",
            numerics=Numerics(**fast),
            dtypes=DTYPES[:3] if backend == "triton" else (),
            summary=f"{op} as {backend} does it.",
        )

    def _planted(self, op: str, kind: str) -> Subject:
        name = f"bug_{kind}"
        summary = f"Bug: a {kind} on purpose."
        return Subject(op=op, name=name, backend="numpy", path=f"kernels/{op}/{name}.py", planted=kind, summary=summary)

    def findings(self, subjects: list[Subject], many: int) -> list[Finding]:
        planted = [s for s in subjects if s.planted]
        accused = [s for s in subjects if "fused" in s.name or "composed" in s.name]
        found: dict[str, Finding] = {}
        while len(found) < many:
            subject = planted[len(found)] if len(found) < min(many // 8, len(planted)) else self.random.choice(accused)
            f = self.finding(subject, subjects)
            found.setdefault(f.id, f)
        return list(found.values())

    def finding(self, subject: Subject, subjects: list[Subject]) -> Finding:
        kinds = (Kind.MISMATCH,) * 4 + (Kind.NONFINITE, Kind.NONFINITE, Kind.UNWRITTEN, Kind.RAISED, Kind.CRASHED)
        kind = Kind(subject.planted) if subject.planted else self.random.choice(kinds)
        dtype = self.random.choice(subject.dtypes or DTYPES)
        pattern = self.random.choice(PATTERNS)
        rule = "rho" if kind is Kind.MISMATCH else "class" if kind is Kind.NONFINITE else "structure"
        error = self.random.choice(("other", "sign", "low_precision", "small", "all_zeros", "missing_nan", "doubled"))
        signature = Signature(
            op=subject.op,
            subject=subject.name,
            kind=kind,
            rule=rule,
            dtype=dtype,
            index_pattern=pattern,
            error_pattern=error,
        )
        shape = (self.random.choice((1, 3, 33, 64, 257)), self.random.choice((2, 31, 65, 129, 1000)))
        shown = self.exhibit(subject, kind, dtype, shape, pattern)
        state = self.random.choice((State.MINIMIZED, State.MINIMIZED, State.CONFIRMED, State.OPEN, State.FLAKY))
        return Finding(
            signature=signature,
            aliases=(f"{signature.key}-before",),
            case=self.case(subject.op, dtype, shape, plain=True),
            original=self.case(subject.op, dtype, (shape[0] * 3, shape[1] * 2), plain=False),
            subject=subject,
            verdict=self.verdict(subject, signature, shown),
            environment=HERE,
            input_digest="00c36299b5c4da7ecd3800935b7894f9",
            exhibit=shown,
            variants=self.variants(subject, kind, subjects),
            count=self.random.randrange(1, 4000),
            probability=0.4 if state is State.FLAKY else 1.0,
            gates=(f"fails only if cols % {self.random.choice((4, 32, 64))} != 0 and cols >= 2",),
            first_seen="2026-11-21T10:19:31+00:00",
            last_seen="2026-11-21T11:57:03+00:00",
            found_by=f"night:{self.random.randrange(10_000_000)}",
            state=state,
            history=(
                Event(at="2026-11-21T10:19:31+00:00", state=State.NEW, what="met in run night"),
                Event(at="2026-11-21T10:19:33+00:00", state=State.CONFIRMED, what="5 of 5 runs failed"),
                Event(at="2026-11-21T10:19:41+00:00", state=state, what="shrunk from 9,675 to 2 elements"),
            ),
            expect="fail" if self.random.random() < 0.04 else "pass",
            reason="a defect of the library, reported there",
        )

    def case(self, op: str, dtype: str, shape: tuple[int, ...], *, plain: bool) -> Case:
        fill = Fill() if plain else Fill(distribution="masked_rows", seed=61956, scale=100.0)
        x = TensorRecipe(
            shape=shape,
            dtype=dtype,
            layout="contiguous" if plain else "transposed",
            fill=fill,
            specials=() if plain else (Special(value="nan_payload", place="middle"),),
            pokes=((0, 15360), (1, 32256)) if plain else (),
        )
        weight = TensorRecipe(shape=shape[-1:], dtype=dtype, fill=Fill(distribution="ones"))
        attrs = {"eps": 1e-5} if "norm" in op else {}
        tensors = {"x": x, "weight": weight} if "norm" in op or op == "gemm" else {"x": x}
        return Case(op=op, tensors=tensors, attrs=attrs)

    def verdict(self, subject: Subject, signature: Signature, shown: Exhibit) -> Verdict:
        if not shown.elements:
            message = "ValueError: could not broadcast input array from shape (31,) into shape (<32>,)"
            return Verdict(kind=signature.kind, rule=signature.rule, message=message, signature=signature)
        worst = shown.elements[0]
        place = ", ".join(map(str, worst.index))
        size = shown.shape[0] * shown.shape[1]
        message = (
            f"out[{place}] is {worst.got:.9g}, wanted {worst.wanted:.9g}: {worst.rho:.3g} times its error budget of "
            f"{worst.bound:.3g} ({shown.failing} of {size} elements fail)"
        )
        numbers = {"budget": 2.4e-7, "max_ulp": 81.0, "nmse": 0.02, "cosine": 0.991, "psnr": 31.2, "max_abs": 0.5}
        rho = Measurement(
            metric="rho", value=worst.rho, limit=1.0, index=worst.index, got=worst.got, wanted=worst.wanted
        )
        others = ", ".join(OPS[subject.op][:2])
        return Verdict(
            kind=signature.kind,
            rule=signature.rule,
            message=message,
            output="out",
            measurements=(rho, *(Measurement(metric=name, value=value) for name, value in numbers.items())),
            signature=signature,
            blame=f"{subject.name} differs from the others; {others} agree with the oracle",
            rho=worst.rho,
        )

    def exhibit(self, subject: Subject, kind: Kind, dtype: str, shape: tuple[int, int], pattern: str) -> Exhibit:
        if kind in {Kind.RAISED, Kind.CRASHED}:
            return Exhibit(detail=TRACEBACK.format(op=subject.op, name=subject.name))
        mask = self.mask(shape, pattern)
        bad = [(r, c) for r, row in enumerate(mask) for c, fails in enumerate(row) if fails]
        return Exhibit(
            output="out",
            shape=shape,
            dtype=dtype,
            failing=len(bad),
            elements=tuple(self.element(kind, at) for at in bad[:14]),
            picture=picture(mask),
            ulps=(self.random.randrange(900), self.random.randrange(90), 7, 3, 0, 1, 0, len(bad)),
            opinions=tuple(
                Opinion(check=c, value="largest error 0.5", passes=self.random.random() < 0.4) for c in CHECKS
            ),
        )

    def element(self, kind: Kind, at: tuple[int, int]) -> Element:
        wanted = self.random.gauss(0.0, 1.0)
        if kind is Kind.NONFINITE:
            return Element(index=at, got=float("nan"), wanted=wanted, bits=0x7FC00000, bound=2e-7, rho=float("inf"))
        got, steps = wanted + self.random.gauss(0.0, 0.1), self.random.randrange(1, 100_000)
        return Element(index=at, got=got, wanted=wanted, bits=0x3F800000, bound=2e-7, rho=steps / 3, ulps=steps)

    def mask(self, shape: tuple[int, int], pattern: str) -> list[list[bool]]:
        rows, columns = shape
        tests: dict[str, Callable[[int, int], bool]] = {
            "tail": lambda _, c: c >= columns - 1 - columns % 32,
            "rows": lambda r, _: r == rows - 1,
            "all": lambda *_: True,
            "single": lambda r, c: r == c == 0,
            "scattered": lambda *_: self.random.random() < 0.03,
            "block": lambda r, c: r >= rows // 2 and c >= columns // 3,
        }
        mask = [[tests[pattern](r, c) for c in range(columns)] for r in range(rows)]
        mask[0][0] = mask[0][0] or not any(map(any, mask))
        return mask

    def variants(self, subject: Subject, kind: Kind, subjects: list[Subject]) -> tuple[Variant, ...]:
        asked = [s for s in subjects if s.op == subject.op and (s.key == subject.key or not s.planted)]
        asked.sort(key=lambda s: s.key != subject.key)
        found = []
        for s in asked:
            for dtype in s.dtypes or DTYPES:
                fails = s.key == subject.key and self.random.random() < 0.8
                rho = self.random.random() * (300 if fails else 0.4)
                found.append(Variant(subject=s.key, dtype=dtype, kind=kind if fails else Kind.PASS, rho=rho))
        return tuple(found)

    def coverage(self, subjects: list[Subject], cases: int) -> dict[str, int]:
        """Cells of a search that tries each combination of classes now and then, some never."""
        cells: dict[str, float] = {}
        for op in OPS:
            names = [s for s in subjects if s.op == op]
            for dtype in DTYPES:
                for shape in SHAPES:
                    for layout, value in self._pairs(op, dtype):
                        weight = self.random.random() ** 4
                        mine = {s.name: weight for s in names if not s.dtypes or dtype in s.dtypes}
                        cells |= {f"{op}|{dtype}|{shape}|{layout}|{value}|{name}": w for name, w in mine.items()}
        total = sum(cells.values())
        judged = cases * 6
        return {cell: n for cell, weight in cells.items() if (n := int(judged * weight / total))}

    def _pairs(self, op: str, dtype: str) -> list[tuple[str, str]]:
        values = [
            v for v in VALUES if (op, dtype, v) not in {("rope", "float64", "raw_bits"), ("gemm", "float16", "nan")}
        ]
        layouts = LAYOUTS[:-1] if (op, dtype) == ("rope", "float64") else LAYOUTS
        return [(layout, value) for value in values for layout in self.random.sample(layouts, 2)]

    def statistics(self, key: str, judged: int) -> Statistics:
        left = [int(judged * 0.6**i) for i in range(2, 12)]
        return Statistics(
            timed=judged,
            nanoseconds=judged * self.random.randrange(8_000, 90_000),
            elements=judged * 1800,
            rho=tuple(reversed(left)),
            ulps=tuple(left[: 3 + len(key) % 6]),
            classes={"nan": judged // 9, "inf": judged // 40},
            skipped={"float64 is not supported by this kernel": judged // 100} if "fused" in key else {},
        )


def picture(mask: list[list[bool]], lines: int = 32, columns: int = 64) -> Picture:
    """The map of a matrix, scaled down as the judge does it."""
    height, width = len(mask), len(mask[0])
    down, along = -(-height // lines), -(-width // columns)
    rows = []
    for top in range(0, height, down):
        row = ""
        for left in range(0, width, along):
            cell = [fails for line in mask[top : top + down] for fails in line[left : left + along]]
            share = sum(cell) / len(cell)
            row += "." if not share else "#" if share == 1 else str(max(1, int(10 * share)))
        rows.append(row)
    return Picture(lines=tuple(rows), height=height, width=width)


def large_book(findings: int = 200, cases: int = 10_000_000, seed: int = 1) -> Book:
    """A finished run over all ops; one finding in eight is about a seeded bug."""
    maker = Maker(Random(seed))
    subjects = maker.subjects()
    found = maker.findings(subjects, findings)
    each = cases * 6 // len(subjects)
    failing = {s.key: {"mismatch": each // 50} for s in subjects if "fused" in s.name}
    failing |= {s.key: {s.planted: each // 3} for s in subjects if s.planted and s.key != "rope/bug_unwritten"}
    by_subject = {
        s.key: {"pass": each - each // 30, "unsupported": each // 30, **failing.get(s.key, {})} for s in subjects
    }
    cells = maker.coverage(subjects, cases)
    campaign = Campaign(
        run="night",
        seed=20261121,
        ops=tuple(OPS),
        subjects=tuple(subjects),
        revision="15b87b9",
        environment=HERE,
        options={"budget": 7200.0, "planted": True, "backend": ""},
        started="2026-11-21T10:00:00+00:00",
        updated="2026-11-21T12:00:00+00:00",
        finished=True,
        next_index=cases,
        cases=cases,
        judged=cases * 6,
        seconds=7200.0,
        kinds={"pass": cases * 5, "mismatch": cases},
        by_subject=by_subject,
        findings=tuple(f.id for f in found),
        known_hits=48_211,
        coverage=cells,
        goals={name: -1 if name in {"broadcast", "law_tested"} else 7 * i**3 for i, name in enumerate(GOALS)},
        max_rho={s.key: maker.random.random() for s in subjects if not s.planted},
        space={
            f"{op}|{dtype}": Space(
                shapes=SHAPES,
                layouts=LAYOUTS,
                values=VALUES,
                subjects=tuple(s.name for s in subjects if s.op == op and (not s.dtypes or dtype in s.dtypes)),
            )
            for op in OPS
            for dtype in DTYPES
        },
        estimated=("embedding",),
        statistics={s.key: maker.statistics(s.key, each) for s in subjects},
        timeline=tuple(
            Moment(
                seconds=i * 60.0,
                judged=i * cases // 20,
                cells=int(len(cells) * (1 - 0.96**i)),
                findings=findings * i // 120,
            )
            for i in range(121)
        ),
        fresh=tuple(f.id for f in found[-findings // 4 :]) if found else (),
    )
    return Book(in_order(found), campaign)
