"""Operators of ATen by how they are followed: those that move values, are linear, elementwise, and so on."""

from __future__ import annotations

from kernel_assay.oracles.numerics.following.intervals import words

MOVES = words("""
    view _unsafe_view reshape expand permute transpose t select slice unsqueeze squeeze cat stack split split_with_sizes
    chunk unbind clone contiguous alias detach lift_fresh index index_select gather embedding take flip roll repeat
    constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d tril triu diagonal amax amin
    max min sort topk kthvalue median cummax cummin max_pool2d_with_indices max_pool3d_with_indices pixel_shuffle
    adaptive_max_pool2d clamp clamp_min clamp_max relu hardtanh unfold im2col as_strided index_put scatter slice_scatter
    select_scatter diag_embed fill copy zero any all movedim pixel_unshuffle channel_shuffle _reshape_alias view_as
    masked_select repeat_interleave index_copy nan_to_num
""")
"""Operators that only move values, or grow with each of them."""
ARRANGES = words("""
    reshape expand permute transpose t select slice unsqueeze squeeze clone contiguous alias detach flip roll repeat
    movedim
""")
"""Those that keep each element as it is, or repeat it, wherever the others are."""
FOUND = words("topk sort kthvalue")
"""Those of them that also tell where values were; so do max and min along an axis."""
FACTORIES = words("zeros ones empty full eye linspace scalar_tensor")
"""Operators that make tensors of nothing."""
VIEWS = words("view _unsafe_view _reshape_alias")
"""Operators that need other strides than a tensor of ours may have."""
MADE = words("zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty new_empty_strided arange")
"""Operators that take nothing but a shape."""
PLACES = words("argmax argmin argsort nonzero searchsorted bucketize count_nonzero")
"""Operators of which only the exact answer counts."""
LINEAR = words("""
    mm bmm mv dot convolution addmv scatter_add index_add im2col col2im upsample_nearest1d_backward
    upsample_nearest2d_backward
""")
"""Operators that are linear in each tensor: sums of products."""
POOLS = words("avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d upsample_bilinear2d upsample_linear1d")
"""Weighted means of elements near one another."""
PUTS = words("scatter scatter_add index_put index_add")
"""Operators that put what they are given at positions."""
SPREADS = words("avg_pool2d_backward _adaptive_avg_pool2d_backward")
"""Operators that take what weighted means were given back to their elements."""
NAMES = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "neg": "negative", "abs": "absolute",
    "pow": "power", "ceil": "ceil", "floor": "floor", "trunc": "trunc", "round": "rint", "sign": "sign",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "floor_divide": "floor_divide", "remainder": "remainder", "fmod": "fmod", "reciprocal": "reciprocal",
    **{name: name for name in words("""
        maximum minimum fmax fmin exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan tanh sinh cosh asin acos
        atan atan2 erf erfc sigmoid logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not
        isnan isinf lgamma digamma erfinv hypot copysign heaviside asinh acosh atanh bitwise_xor
    """)},
}  # fmt: skip
"""Elementwise operators, and the functions of numpy whose errors they have."""
