"""The contract suite: what every algorithm must do, as checks with words that help an algorithm's author.

`plench check` runs it on anyone's algorithm; the package's tests run the same checks over the registry.
A check is one function in a file of this folder, marked `@required` or `@advised`; it is found by itself.
"""

from plench.contract.base import Check, Outcome
from plench.contract.subject import Subject
from plench.contract.suite import checks, run_check, run_suite

__all__ = ["Check", "Outcome", "Subject", "checks", "run_check", "run_suite"]
