"""JAX 0.10.2: jnp.nanmean rounds the sum to float16 before it divides; jnp.mean does not."""

from _seen import needed, tell

with needed():
    import jax.numpy as jnp

x = jnp.asarray([32768.0, 32768.0], jnp.float16)
got, mean = float(jnp.nanmean(x)), float(jnp.mean(x))
tell(got != mean, f"nanmean is {got}, mean is {mean}")
