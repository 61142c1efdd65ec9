"""SVG figures that need no script: cost against quality, and the forest of paired differences."""

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
"""Colours of flows, as on the page."""
INK, SOFT, LINE, GOOD, BAD, PAPER = "#1d1f24", "#5c616b", "#dfddd6", "#17693c", "#ad1f2b", "#fbfaf7"
WIDTH = 640
LETTER = 6.7
"""Approximate width of a letter at 12 px."""
VERDICTS = {"B better": "better", "B worse": "worse", "no difference shown": "not shown", "unchanged": "equal"}
Mean = tuple[float | None, Interval, int]


@dataclass(frozen=True)
class Picture:
    """An SVG for notebooks, with a text of the same content for terminals.

    A notebook gets it as an image, because viewers of saved notebooks may drop the styles of an inline SVG.
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
    """Draw flows by their means of two measures, with 95 % intervals; a line joins the Pareto front."""
    drawn = [(n, name, _ends(a), _ends(b)) for n, (name, a, b) in enumerate(points) if None not in (a[0], b[0])]
    height, left, right, top, bottom = 340, 60, 20, 34, 44
    x_scale = _Scale([value for _, _, a, _ in drawn for value in a], left, WIDTH - right, x)
    y_scale = _Scale([value for _, _, _, b in drawn for value in b], height - bottom, top, y)
    parts = []
    for tick in x_scale.ticks():
        parts.append(_line(x_scale(tick), top, x_scale(tick), height - bottom, LINE))
        parts.append(_text(x_scale(tick), height - bottom + 16, format_number(tick), SOFT, "middle"))
    for tick in y_scale.ticks():
        parts.append(_line(left, y_scale(tick), WIDTH - right, y_scale(tick), LINE))
        parts.append(_text(left - 6, y_scale(tick) + 4, format_number(tick), SOFT, "end"))

    signs = [1 if each.better == "higher" else -1 for each in (x, y)]
    means = [(a[0], b[0]) for _, _, a, b in drawn]

    def is_dominated(mean: tuple[float, float]) -> bool:
        gains = (zip(signs, other, mean, strict=True) for other in means if other != mean)
        return any(all(sign * more >= sign * less for sign, more, less in gain) for gain in gains)

    front = sorted(mean for mean in means if not is_dominated(mean))
    path = " ".join(f"{x_scale(a):.1f},{y_scale(b):.1f}" for a, b in front)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{SOFT}" stroke-dasharray="4 4"/>')
    labels: list[tuple[float, float, float]] = []
    for number, name, a, b in sorted(drawn, key=lambda point: point[3][0]):
        colour, cx, cy = COLOURS[number % len(COLOURS)], x_scale(a[0]), y_scale(b[0])
        if a[1:]:
            parts.append(_line(x_scale(a[1]), cy, x_scale(a[2]), cy, colour))
        if b[1:]:
            parts.append(_line(cx, y_scale(b[1]), cx, y_scale(b[2]), colour))
        parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="6" fill="{colour}"/>')
        half = len(name) * LETTER / 2
        middle, line = min(max(left + half, cx), WIDTH - right - half), cy - 11
        while any(abs(line - y0) < 14 and abs(middle - x0) < half + wide for x0, y0, wide in labels):
            line -= 14
        labels.append((middle, line, half))
        parts.append(_text(middle, line, name, INK, "middle", bold=True))
    parts += [_text(0, 14, f"↑ {y.title}", SOFT), _text(WIDTH, height - 6, f"{x.title} →", SOFT, "end")]
    lines = [f"{name}: {x.title} {_mean_text(x, a)}, {y.title} {_mean_text(y, b)}" for name, a, b in points]
    return Picture(_svg(f"{x.title} against {y.title}", height, parts), "\n".join(map(escape_block, lines)))


def forest(comparison: Comparison) -> Picture:
    """Draw paired differences of primary measures; right is better, and costs are shares of A's mean."""
    parts, lines, y = [], [], 8.0
    middle, half = 310.0, 120.0
    rows_of_pairs = [
        [(d, *_scaled(d)) for d in pair.differences if d.primary and d.difference is not None]
        for pair in comparison.pairs
    ]
    max_end = {"higher": 0.1, "lower": 0.1}
    for d, _, ends in (row for scaled in rows_of_pairs for row in scaled):  # one scale for all pairs
        max_end[d.measure.better] = max(max_end[d.measure.better], *map(abs, ends))
    for pair, scaled in zip(comparison.pairs, rows_of_pairs, strict=True):
        y += 18
        parts.append(_text(0, y, f"{pair.b} against {pair.a}", INK, bold=True))
        y += 8
        top = y
        for d, center, ends in scaled:
            y += 22
            edge = max_end[d.measure.better]
            low, high = (middle + half * end / edge for end in ends)
            colour = GOOD if d.verdict == "B better" else BAD if d.verdict == "B worse" else SOFT
            parts.append(_text(0, y, d.measure.title, INK))
            parts.append(_line(low, y - 4, high, y - 4, colour, 2))
            mark = middle + half * center / edge
            parts.append(f'<rect x="{mark - 4:.1f}" y="{y - 8:.1f}" width="8" height="8" fill="{colour}"/>')
            parts.append(_text(middle + half + 14, y, f"{_change(d)} {VERDICTS.get(d.verdict, d.verdict)}", colour))
            lines.append(_sentence(pair, d))
        parts.append(_line(middle, top + 6, middle, y + 4, SOFT))
    y += 22
    parts.append(_text(middle, y, "← worse    better →", SOFT, "middle"))
    return Picture(_svg("Paired differences", y + 10, parts), "\n".join(map(escape_block, lines)))


class _Scale:
    """Maps values to pixels, with round ticks; the axis of a cost starts at 0."""

    def __init__(self, values: Sequence[float], start: float, end: float, measure: Measure) -> None:
        quality = measure.better == "higher"
        low = min([*values, *(() if quality else (0.0,))], default=0.0)
        high = max(values, default=1.0)
        room = (high - low) * 0.08 or (0.1 if quality else 0.5)
        self.low, self.high = (low - room if quality else low), high + room
        if quality and high <= 1:
            self.high = min(self.high, 1.02)
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
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


def _mean_text(measure: Measure, mean: Mean) -> str:
    interval = f" [{format_number(mean[1][0])}, {format_number(mean[1][1])}]" if mean[1] else ""
    return f"{measure.show(mean[0])}{interval} (n={mean[2]})"


def _scaled(d: Judgement) -> tuple[float, tuple[float, float]]:
    """Return the difference and its interval, positive if better; a cost is a share of the first flow's mean."""
    assert d.difference is not None
    scale = 1.0 if d.measure.better == "higher" else -1 / abs(d.a) if d.a else 0.0
    low, high = sorted(end * scale for end in d.ci95 or (d.difference, d.difference))
    return d.difference * scale, (low, high)


def _change(d: Judgement) -> str:
    assert d.difference is not None
    return (
        f"{d.difference / abs(d.a):+.0%}" if d.measure.better == "lower" and d.a else format_number(d.difference, "+")
    )


def _sentence(pair: FlowPair, d: Judgement) -> str:
    change = " ".join(filter(None, (format_number(d.difference, "+"), d.interval)))
    return f"{pair.b} - {pair.a}, {d.measure.title}: {change} (n={d.n}): {d.words}"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.2) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start", *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    position = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {position} fill="{colour}"{weight}>{as_html(one_line(text))}</text>'


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    """Return the SVG, which follows a dark theme of the reader."""
    style = "<style>@media (prefers-color-scheme: dark) { svg { filter: invert(.9) hue-rotate(180deg) } }</style>"
    box = f"-12 -8 {WIDTH + 24} {height + 16:.0f}"
    background = f'<rect x="-12" y="-8" width="{WIDTH + 24}" height="{height + 16:.0f}" rx="8" fill="{PAPER}"/>'
    font = 'font-family="system-ui, sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="{box}" width="{WIDTH + 24}" {font}>'
    return "".join([head, f"<title>{as_html(title)}</title>", style, background, *parts, "</svg>"])
