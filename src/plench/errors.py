"""The errors plench raises on purpose. Their text is written for the user and names what is allowed."""


class PlenchError(Exception):
    """Base class: bad input of any kind. A command that fails with one prints its text and exits with 2."""


class UsageError(PlenchError):
    """A name, option or value that plench does not know, with what it does know."""


class DataError(PlenchError):
    """A dataset that cannot be used: missing, broken, hostile or inconsistent."""


class MissingDataError(DataError):
    """A dataset whose files are not there."""


class ResumeError(PlenchError):
    """A run that may not be continued as asked (other versions, other thread count)."""


class RunFailedError(PlenchError):
    """A training run stopped with an error of the algorithm. The command exits with 1."""


class StorageError(PlenchError):
    """A folder that cannot be written to: full, read-only or gone. The run itself is not to blame."""


class BusyError(PlenchError):
    """A folder that another process is working on."""


def missing_package(purpose: str, package: str, extra: str) -> UsageError:
    """Return the error for a package that is not installed; `extra` is the extra of plench that has it."""
    return UsageError(f"{purpose} needs {package}: pip install {package} (plench's extra {extra!r} has it)")
