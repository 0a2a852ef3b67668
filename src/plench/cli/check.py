"""Check an algorithm against the contract: required checks, and advice.

examples:
  plench check my_algorithm.py:MyAlgorithm
  plench check PRODEN --json

exit codes: 0 every required check passed, 1 one failed, 2 bad usage
"""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("algorithm", help="path/to/file.py:ClassName, module:ClassName or a name")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or mps (default: cpu)")


def run(args: argparse.Namespace) -> int:
    """Run the suite on an algorithm and print what fails and why."""
    from plench.contract import check  # imports torch, which showing the help does not need

    report = check(args.algorithm, device=args.device)
    if args.json:
        rows = [
            {
                **{key: getattr(outcome.check, key) for key in ("name", "level", "demand")},
                **{key: getattr(outcome, key) for key in ("status", "detail")},
            }
            for outcome in report.outcomes
        ]
        print(json.dumps({"algorithm": report.algorithm, "passed": report.passed, "checks": rows}, indent=1))
    else:
        print(report)
    return 0 if report.passed else 1
