"""The contract suite: what every algorithm must do, as checks whose messages say what to fix.

`plench check` runs it on any algorithm; the package's tests run the same checks over the registry. A check is
a function marked `@required` or `@advised` in `training`, `state` or `speed`. Its docstring is the demand.
"""

from plench.contract.suite import checks, run_check, run_suite
from plench.contract.under_test import AlgorithmUnderTest, Check, Outcome

__all__ = ["AlgorithmUnderTest", "Check", "Outcome", "checks", "run_check", "run_suite"]
