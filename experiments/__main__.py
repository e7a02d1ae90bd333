"""Run every experiment: `python -m experiments`, with the options of a single one."""

from __future__ import annotations

import importlib
import sys

from experiments import NAMES, common


def main() -> int:
    """Run all, then repeat the verdicts; 1 when one of them does not hold."""
    options = common.options(__doc__)
    verdicts = [common.run(importlib.import_module(f"experiments.{name}"), options) for name in NAMES]
    print()
    for name, verdict in zip(NAMES, verdicts, strict=True):
        print(f"{name:24s} {verdict}")
    return int(not all(verdict.holds for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
