"""Digests by which a public file is recognised."""

import hashlib


def hash_git_blob(content: bytes) -> str:
    """Git's SHA-1 of a file's content, as GitHub shows it: the hash of `blob <size>\\0` and the content."""
    digest = hashlib.sha1(f"blob {len(content)}\0".encode(), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def hash_md5(content: bytes) -> str:
    """The MD5 by which some older public files are known."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
