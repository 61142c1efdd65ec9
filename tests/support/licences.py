"""Licences of the packages that agentlab needs. `make licences` prints them; an unknown or copyleft one is an error.

Read from what is installed, without a network. Weak copyleft that is only used, never changed, is named one by one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata

EXTRAS = (
    "chroma",
    "dask",
    "documents",
    "gemini",
    "languages",
    "mcp",
    "mongo",
    "notebook",
    "parquet",
    "web",
    "sentence-transformers",
)
"""Optional dependencies of agentlab; `dev`, `docs`, `bench` and `browser` are not distributed."""
PERMISSIVE = re.compile(
    r"\b(MIT(-0|-CMU)?|BSD|[0-3]-?clause|Apache|ISC|ISCL|Python|PSF|CNRI|HPND|Zlib|Unlicense|CC0|Public Domain|0BSD"
    r"|Zope|ZPL|NCSA|BlueOak|Boost|BSL-1\.0|Artistic|SIL)\b",
    re.IGNORECASE,
)
COPYLEFT = re.compile(r"\b(A?GPL|LGPL|General Public|MPL|Mozilla|EUPL|CDDL|EPL|SSPL|Eclipse)", re.IGNORECASE)
WEAK = {
    "certifi": "MPL-2.0: the list of certificates, as it comes",
    "tqdm": "MPL-2.0 AND MIT: progress bars, as they come",
    "orjson": "MPL-2.0 AND (Apache-2.0 OR MIT): as it comes",
    "pathspec": "MPL-2.0: as it comes",
    "fqdn": "MPL-2.0: as it comes",
}


def closure(name: str, extras: tuple[str, ...] = ()) -> Iterator[metadata.Distribution]:
    """The installed distributions that `name` needs, without `name`; packages that are not installed are left out."""
    from packaging.requirements import Requirement

    seen: set[tuple[str, tuple[str, ...]]] = set()
    results: dict[str, metadata.Distribution] = {}
    waiting = [(name, extras)]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        results[re.sub(r"[-_.]+", "-", distribution.name).lower()] = distribution
        for line in distribution.requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                waiting.append((wanted.name, tuple(sorted(wanted.extras))))
    results.pop("agentlab-harness", None)
    yield from (results[key] for key in sorted(results))


def licence_of(about: metadata.PackageMetadata) -> str:
    """Return the licence of a package: SPDX expression, classifiers or free text; "" if it names none."""
    licence = about.get("License-Expression")
    classifiers = [c.split(" :: ")[-1] for c in about.get_all("Classifier") or () if c.startswith("License ::")]
    named = ", ".join(c for c in classifiers if c != "OSI Approved")
    return licence or named or (about.get("License") or "").strip().split("\n")[0][:80]


def verdict(name: str, licence: str) -> str:
    """Return `ok` or the problem; one permissive alternative is enough, and any copyleft part is a problem."""
    if not licence:
        return "unknown"
    if any(PERMISSIVE.search(part) and not COPYLEFT.search(part) for part in re.split(r"\bOR\b", licence)):
        return "ok"
    if COPYLEFT.search(licence):
        return f"ok ({WEAK[name]})" if name in WEAK else "copyleft"
    return "ok" if PERMISSIVE.search(licence) else "unknown"


def table(extras: tuple[str, ...] = EXTRAS) -> list[tuple[str, str, str, str]]:
    """Return name, version, licence and verdict of each package that agentlab needs with these extras."""
    rows = []
    for distribution in closure("agentlab-harness", extras):
        name = re.sub(r"[-_.]+", "-", distribution.name).lower()
        licence = licence_of(distribution.metadata)
        rows.append((name, distribution.version, licence, verdict(name, licence)))
    return rows


if __name__ == "__main__":
    rows = table()
    for name, version, licence, verdict in rows:
        print(f"{name:32} {version:14} {licence[:50]:50} {verdict}")
    bad = [row for row in rows if not row[3].startswith("ok")]
    print(f"{len(rows)} packages, {len(bad)} with a licence that is unknown or copyleft")
    sys.exit(bool(bad))
