"""Seeds with different jobs: trial seed → data, hparams seed → configuration, seed → the run."""

import hashlib


def seed_hash(*args: object) -> int:
    """Hash any arguments to a seed in [0, 2³¹): md5 of the tuple's Python text."""
    return int(hashlib.md5(str(args).encode("utf-8"), usedforsecurity=False).hexdigest(), 16) % 2**31
