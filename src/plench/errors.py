"""The errors that plench raises on purpose. Their text says what happened, what was expected, what to do."""

from collections.abc import Iterator
from contextlib import contextmanager


class PlenchError(Exception):
    """Base class: bad input of any kind. A command that fails with one prints its text and exits with 2."""


class UsageError(PlenchError):
    """An unknown name, option or value."""


class DataError(PlenchError):
    """A dataset that cannot be used: missing, damaged or inconsistent."""


class MissingDataError(DataError):
    """A dataset whose files are missing."""


class ResumeError(PlenchError):
    """A run that cannot be resumed as asked (other versions, other thread count)."""


class RunFailedError(PlenchError):
    """A training run that failed with an error of the algorithm. The command exits with 1."""


class StorageError(PlenchError):
    """A folder that cannot be written to: full, read-only or gone."""


class BusyError(PlenchError):
    """A folder that another process is using."""


@contextmanager
def as_data_error(text: str) -> Iterator[None]:
    """Raise DataError with this text and the reason for any error in the block that is not ours.

    Libraries raise many types for a damaged file.
    """
    try:
        yield
    except PlenchError:
        raise
    except Exception as error:
        raise DataError(f"{text} ({getattr(error, 'strerror', None) or error})") from None


@contextmanager
def needs_package(purpose: str, package: str, extra: str) -> Iterator[None]:
    """Raise UsageError for an import in the block that fails; `extra` is the extra of plench that has it."""
    try:
        yield
    except ImportError as error:
        text = f"{purpose} needs {package}: pip install {package} (plench's extra {extra!r} has it)"
        raise UsageError(text) from error
