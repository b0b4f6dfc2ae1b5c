"""A case of given extents with plain values: small numbers, dense tensors, attributes as they are tried first."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_assay.corpus.formats import format_of
from kernel_assay.corpus.model.case import Case, Fill, TensorRecipe
from kernel_assay.oracles.spec.axes import Dims, shape_of
from kernel_assay.oracles.spec.contract import Contract, Input


def plain_case(
    contract: Contract, dims: Dims, dtype: str = "", seed: int = 0, variant: Mapping[str, str] | None = None
) -> Case:
    """Make such a case. dtype: of the first input; empty: the plainest; variant: of all inputs."""
    variant = variant or next((v for v in contract.variants if next(iter(v.values())) == dtype), contract.variants[0])
    attrs = {name: values[0] for name, values in contract.attrs.items()}
    tensors = {}
    for number, (name, spec) in enumerate(contract.inputs.items()):
        fill = Fill(
            distribution=_distribution(spec, variant[name]),
            seed=seed + number,
            params=spec.params(dims, attrs),
        )
        tensors[name] = TensorRecipe(shape=shape_of(spec.axes, dims, attrs), dtype=variant[name], fill=fill)
    return Case(op=contract.name, tensors=tensors, attrs=attrs)


def _distribution(spec: Input, dtype: str) -> str:
    if spec.ranged:
        return spec.distributions[0] if spec.distributions else "between"
    if spec.packed:
        return "blocks"
    usual = "normal" if format_of(dtype).is_float else "uniform"
    return usual if not spec.distributions or usual in spec.distributions else spec.distributions[0]
