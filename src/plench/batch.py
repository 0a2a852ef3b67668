"""Where 0.2.0 had `Batch`: stored third-party code imports it from here."""

from plench.algorithms.base import Batch as Batch
