"""Paths of the checkout, its tests, its data sets, and the public sets beside it."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
OWN = ROOT / "datasets"
PUBLIC = ROOT.parent / "shared" / "datasets"
"""The public sets, which are not part of this repository and may not be there."""
