"""What plench costs beside floors that are measured in the same process, in turns (`plench bench`).

The names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.bench.describe import describe_machine as describe_machine
    from plench.bench.evaluating import measure_evaluation as measure_evaluation
    from plench.bench.fleet import measure_fleet as measure_fleet
    from plench.bench.reading import measure_reading as measure_reading
    from plench.bench.step import measure_step as measure_step
    from plench.bench.sweep import measure_sweep as measure_sweep

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
