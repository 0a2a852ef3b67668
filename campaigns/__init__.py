"""Campaigns: long attacks on plench that are no tests, as they run for as long as they are given.

`make test` replays what they found. docs/trust.md has the figures of the last ones.
"""
