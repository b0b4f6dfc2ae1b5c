"""One case by one subject under torch's profiler: a trace that Chrome and Perfetto show, and what each operator took.

Its arguments are an Order (kernels/nvidia/run_once.py), the file of the trace, and that of a JSON list of operators.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic_core import to_json

from kernel_assay.kernels.nvidia.run_once import Order, answer
from kernel_assay.kernels.worker.executor import Executor


def main() -> None:
    """Run the order twice, the first time to load and compile, and profile the second."""
    trace, table = map(Path, sys.argv[2:])

    def calling(order: Order, executor: Executor) -> None:
        from torch import cuda, profiler  # noqa: PLC0415  after the subject: most need no torch

        order.call(executor)
        kinds = [profiler.ProfilerActivity.CPU, *([profiler.ProfilerActivity.CUDA] if cuda.is_available() else [])]
        with profiler.profile(activities=kinds, record_shapes=True) as seen:
            order.call(executor)
            if cuda.is_available():
                cuda.synchronize()
        seen.export_chrome_trace(str(trace))
        rows = [
            {
                "operator": one.key,
                "calls": one.count,
                "cpu_microseconds": one.self_cpu_time_total,
                "gpu_microseconds": one.self_device_time_total,
            }
            for one in seen.key_averages()
        ]
        table.write_bytes(to_json(rows))

    sys.exit(answer(sys.argv[1:2], calling))
