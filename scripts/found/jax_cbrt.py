"""JAX 0.10.2: jnp.cbrt of a subnormal number is neither its cube root, nor 0, and of the other sign."""

from _seen import needed, tell

with needed():
    import jax.numpy as jnp

got = float(jnp.cbrt(jnp.asarray(1e-40, jnp.float32)))
tell(got < 0.0, f"{got:.3g} for 1e-40")
