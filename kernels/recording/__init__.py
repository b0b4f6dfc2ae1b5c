"""Record what a model run asks of torch: shapes and dtypes of its calls, never a value of a tensor."""
