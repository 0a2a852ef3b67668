"""The one place the versions are written."""

__version__ = "0.2.0"

# Of the protocol: raised whenever a change of ours alters the numbers that a configuration gives.
PROTOCOL_VERSION = 1
