"""The step kind ``profile``: Nsight Compute's metrics of one call, down to a named bottleneck."""
