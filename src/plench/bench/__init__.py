"""What plench costs beside floors that are measured in the same process, in turns (`plench bench`)."""

from plench.bench.describe import describe_machine
from plench.bench.evaluating import measure_evaluation
from plench.bench.fleet import measure_fleet
from plench.bench.reading import measure_reading
from plench.bench.step import measure_step
from plench.bench.sweep import measure_sweep

__all__ = [
    "describe_machine",
    "measure_evaluation",
    "measure_fleet",
    "measure_reading",
    "measure_step",
    "measure_sweep",
]
