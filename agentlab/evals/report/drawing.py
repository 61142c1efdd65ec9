"""Two of the page's figures as SVG, for where no script runs: cost against quality, and the forest of differences."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentlab.core.escaping import as_html, escape_block, one_line
from agentlab.evals.compare.judgement import Judgement
from agentlab.evals.compare.pairs import Comparison, FlowPair
from agentlab.evals.stats.statistics import Interval
from agentlab.evals.store.measures import Measure, format_number

COLOURS = ("#1f5fd0", "#c2500a", "#13795b", "#a3248f", "#6b5a00", "#0b7285", "#b3261e", "#5f3dc4")
"""Of flows, as on the page."""
INK, SOFT, LINE, GOOD, BAD = "#1d1f24", "#5c616b", "#dfddd6", "#17693c", "#ad1f2b"
WIDTH = 640
LETTER = 6.7
"""Width of a letter at 12 px, about."""
READINGS = {"B better": "better", "B worse": "worse", "no difference shown": "not shown", "unchanged": "equal"}
Mean = tuple[float | None, Interval, int]


@dataclass(frozen=True)
class Picture:
    """An SVG that shows itself in a notebook; where pictures are not shown, the same in words.

    It stands there as an image: what shows saved notebooks may drop the styles of an SVG, and not look into an image.
    """

    svg: str
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        source = f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"
        image = f'<img src="{source}" width="{WIDTH + 24}" alt="{as_html(self.text)}">'
        return {"text/html": image, "text/plain": self.text}


def pareto(x: Measure, y: Measure, points: Sequence[tuple[str, Mean, Mean]]) -> Picture:
    """Flows by their means of two measures, with intervals at 95 %; a line joins those that none beats in both."""
    known = [(n, name, a, b) for n, (name, a, b) in enumerate(points) if a[0] is not None and b[0] is not None]
    height, left, right, top, bottom = 340, 60, 20, 34, 44
    across = _Scale([value for _, _, a, _ in known for value in _ends(a)], left, WIDTH - right, x)
    up = _Scale([value for _, _, _, b in known for value in _ends(b)], height - bottom, top, y)
    parts = []
    for tick in across.ticks():
        parts.append(_line(across(tick), top, across(tick), height - bottom, LINE))
        parts.append(_text(across(tick), height - bottom + 16, format_number(tick), SOFT, "middle"))
    for tick in up.ticks():
        parts.append(_line(left, up(tick), WIDTH - right, up(tick), LINE))
        parts.append(_text(left - 6, up(tick) + 4, format_number(tick), SOFT, "end"))

    def better(measure: Measure, value: float | None) -> float:
        assert value is not None
        return value if measure.better == "higher" else -value

    def beaten(a: Mean, b: Mean) -> bool:
        return any(
            better(x, c[0]) >= better(x, a[0]) and better(y, d[0]) >= better(y, b[0]) and (c[0], d[0]) != (a[0], b[0])
            for _, _, c, d in known
        )

    front = sorted((a[0], b[0]) for _, _, a, b in known if not beaten(a, b))
    joined = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in front)
    parts.append(f'<polyline points="{joined}" fill="none" stroke="{SOFT}" stroke-dasharray="4 4"/>')
    taken: list[tuple[float, float, float]] = []
    for number, name, a, b in sorted(known, key=lambda point: point[3][0] or 0):
        colour, here, there = COLOURS[number % len(COLOURS)], across(a[0]), up(b[0])
        if a[1]:
            parts.append(_line(across(a[1][0]), there, across(a[1][1]), there, colour))
        if b[1]:
            parts.append(_line(here, up(b[1][0]), here, up(b[1][1]), colour))
        parts.append(f'<circle cx="{here:.1f}" cy="{there:.1f}" r="6" fill="{colour}"/>')
        half = len(name) * LETTER / 2
        middle, line = min(max(left + half, here), WIDTH - right - half), there - 11
        while any(abs(line - other) < 14 and abs(middle - place) < half + wide for place, other, wide in taken):
            line -= 14
        taken.append((middle, line, half))
        parts.append(_text(middle, line, name, INK, "middle", bold=True))
    parts += [_text(0, 14, f"↑ {y.title}", SOFT), _text(WIDTH, height - 6, f"{x.title} →", SOFT, "end")]
    told = [f"{name}: {x.title} {_said(x, a)}, {y.title} {_said(y, b)}" for name, a, b in points]
    return Picture(_svg(f"{x.title} against {y.title}", height, parts), "\n".join(map(escape_block, told)))


def forest(comparison: Comparison) -> Picture:
    """Paired differences of what decides, turned so that right of the line is better; costs as shares of A's mean."""
    parts, told, y = [], [], 8.0
    middle, half = 310.0, 120.0
    every = [
        [(d, *_scaled(d)) for d in pair.differences if d.primary and d.difference is not None]
        for pair in comparison.pairs
    ]
    reach = {"higher": 0.1, "lower": 0.1}
    for d, _, ends in (row for scaled in every for row in scaled):  # one scale for all pairs
        reach[d.measure.better] = max(reach[d.measure.better], *map(abs, ends))
    for pair, scaled in zip(comparison.pairs, every, strict=True):
        y += 18
        parts.append(_text(0, y, f"{pair.b} against {pair.a}", INK, bold=True))
        y += 8
        began = y
        for d, center, ends in scaled:
            y += 22
            most = reach[d.measure.better]
            low, high = (middle + half * end / most for end in ends)
            colour = GOOD if d.verdict == "B better" else BAD if d.verdict == "B worse" else SOFT
            parts.append(_text(0, y, d.measure.title, INK))
            parts.append(_line(low, y - 4, high, y - 4, colour, 2))
            place = middle + half * center / most
            parts.append(f'<rect x="{place - 4:.1f}" y="{y - 8:.1f}" width="8" height="8" fill="{colour}"/>')
            parts.append(_text(middle + half + 14, y, f"{_change(d)} {READINGS.get(d.verdict, d.verdict)}", colour))
            told.append(_in_words(pair, d))
        parts.append(_line(middle, began + 6, middle, y + 4, SOFT))
    y += 22
    parts.append(_text(middle, y, "← worse    better →", SOFT, "middle"))
    return Picture(_svg("Paired differences", y + 10, parts), "\n".join(map(escape_block, told)))


class _Scale:
    """From values to pixels, with round ticks; a cost begins at nothing."""

    def __init__(self, values: Sequence[float], start: float, end: float, measure: Measure) -> None:
        quality = measure.better == "higher"
        low = min([*values, *(() if quality else (0.0,))], default=0.0)
        high = max(values, default=1.0)
        room = (high - low) * 0.08 or (0.1 if quality else 0.5)
        self.low, self.high = (low - room if quality else low), high + room
        if quality and high <= 1:
            self.high = min(self.high, 1.02)
        self._start, self._end = start, end

    def __call__(self, value: float | None) -> float:
        assert value is not None
        return self._start + (value - self.low) / (self.high - self.low) * (self._end - self._start)

    def ticks(self) -> Iterator[float]:
        raw = (self.high - self.low) / 4
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(k * power for k in (1, 2, 5, 10) if k * power >= raw)
        for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1):
            yield float(f"{number * step:.12g}")


def _ends(mean: Mean) -> tuple[float, ...]:
    assert mean[0] is not None
    return (mean[0], *(mean[1] or ()))


def _said(measure: Measure, mean: Mean) -> str:
    interval = f" [{format_number(mean[1][0])}, {format_number(mean[1][1])}]" if mean[1] else ""
    return f"{measure.show(mean[0])}{interval} (n={mean[2]})"


def _scaled(d: Judgement) -> tuple[float, tuple[float, float]]:
    """The difference and its ends, better to the right; a cost as a share of the first flow's mean."""
    assert d.difference is not None
    scale = 1.0 if d.measure.better == "higher" else -1 / abs(d.a) if d.a else 0.0
    low, high = sorted(end * scale for end in d.ci95 or (d.difference, d.difference))
    return d.difference * scale, (low, high)


def _change(d: Judgement) -> str:
    assert d.difference is not None
    return (
        f"{d.difference / abs(d.a):+.0%}" if d.measure.better == "lower" and d.a else format_number(d.difference, "+")
    )


def _in_words(pair: FlowPair, d: Judgement) -> str:
    interval = f" [{format_number(d.ci95[0])}, {format_number(d.ci95[1])}]" if d.ci95 else ""
    return (
        f"{pair.b} - {pair.a}, {d.measure.title}: {format_number(d.difference, '+')}{interval} (n={d.n}): {d.verdict}"
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.2) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start", *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}"{weight}>{as_html(one_line(text))}</text>'


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    """On a paper of its own: the theme around it may be dark."""
    box = f"-12 -8 {WIDTH + 24} {height + 16:.0f}"
    paper = f'<rect x="-12" y="-8" width="{WIDTH + 24}" height="{height + 16:.0f}" rx="8" fill="#fbfaf7"/>'
    font = 'font-family="system-ui, sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="{box}" width="{WIDTH + 24}" {font}>'
    return "".join([head, f"<title>{as_html(title)}</title>", paper, *parts, "</svg>"])
