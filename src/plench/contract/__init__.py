"""The contract suite: what every algorithm must do, as checks whose messages say what to mend.

`plench check` runs it on anyone's algorithm; the package's tests run the same checks over the registry.
A check is one function in a file of this folder, marked `@required` or `@advised`; it is found automatically.
The names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plench.lazy import lazy_attributes

if TYPE_CHECKING:
    from plench.contract.base import Check as Check
    from plench.contract.base import Outcome as Outcome
    from plench.contract.subject import Subject as Subject
    from plench.contract.suite import check_algorithm as check_algorithm
    from plench.contract.suite import checks as checks
    from plench.contract.suite import run_check as run_check
    from plench.contract.suite import run_suite as run_suite

__all__, __getattr__, __dir__ = lazy_attributes(__name__)
