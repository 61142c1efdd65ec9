"""SVG figures that need no script: cost against quality, and the forest of paired differences.

The page and the notebook show the same drawings. Colours are variables of the page with a fallback, which a viewer
outside the page uses.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentlab.core.escaping import as_html, escape_block, one_line
from agentlab.evals.compare.family import MIN_DIFFERING
from agentlab.evals.compare.measure_verdict import MeasureVerdict
from agentlab.evals.compare.pairs import FlowPair
from agentlab.evals.report.content import Content, Mean
from agentlab.evals.store.measures import Measure, format_number, measure

HUES = ("#1f5fd0", "#c2500a", "#13795b", "#a3248f", "#6b5a00", "#0b7285", "#b3261e", "#5f3dc4")
COLOURS = tuple(f"var(--f{n}, {hue})" for n, hue in enumerate(HUES))
"""Colours of flows."""
INK, SOFT, LINE = "var(--ink, #1d1f24)", "var(--soft, #5c616b)", "var(--line, #dfddd6)"
GOOD, BAD, PAPER = "var(--good, #17693c)", "var(--bad, #ad1f2b)", "var(--card, #fbfaf7)"
MID = "var(--mid, #7a5600)"
IN_THE_DARK = ":is([data-jp-theme-light=false], .vscode-dark) .agentlab-picture"
DARK = f"<style>{IN_THE_DARK} {{ filter: invert(.9) hue-rotate(180deg) }}</style>"
"""Style of pictures in the dark themes of JupyterLab and VS Code."""
WIDTH = 480
LETTER = 7.4
"""Approximate width of a letter at 13 px."""
DIRECTIONS = "← worse or dearer · better or cheaper →"
VERDICTS = {"undecided": "not shown", "unchanged": "equal"}
Dot = tuple[float, float, int, str]


@dataclass(frozen=True)
class Picture:
    """An SVG, with a text of the same content for terminals.

    A notebook gets it as an image, because viewers of saved notebooks may drop the styles of an inline SVG.
    """

    title: str
    svg: str
    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        source = f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"
        image = f'<img class="agentlab-picture" src="{source}" width="{WIDTH + 24}" alt="{as_html(self.text)}">'
        return {"text/html": DARK + image, "text/plain": self.text}


def pareto(content: Content, x_name: str, y_name: str) -> Picture:
    """Draw flows by their means of two measures, with 95 % intervals; a line joins the Pareto front."""
    x, y, names = measure(x_name), measure(y_name), content.measures
    points = [
        (side.name, line[names.index(x_name)], line[names.index(y_name)])
        for side, line in zip(content.sides, content.intervals, strict=True)
    ]
    drawn = [(n, name, _ends(a), _ends(b)) for n, (name, a, b) in enumerate(points) if None not in (a[0], b[0])]
    height, left, right, top, bottom = 330, 52, 16, 46, 62
    x_scale = _Scale([value for _, _, a, _ in drawn for value in a], left, WIDTH - right)
    y_scale = _Scale([value for _, _, _, b in drawn for value in b], height - bottom, top)
    parts = []
    for at, tick in ((x_scale(tick), tick) for tick in x_scale.ticks()):
        parts.append(_line(at, top, at, height - bottom, LINE))
        parts.append(_text(at, height - bottom + 16, format_number(tick), SOFT, "middle"))
    for at, tick in ((y_scale(tick), tick) for tick in y_scale.ticks()):
        parts.append(_line(left, at, WIDTH - right, at, LINE))
        parts.append(_text(left - 6, at + 4, format_number(tick), SOFT, "end"))
    signs = [1 if each.better == "higher" else -1 for each in (x, y)]
    gains = {(signs[0] * a[0], signs[1] * b[0]) for _, _, a, b in drawn}
    dominated = {low for low in gains for high in gains if high != low and high[0] >= low[0] and high[1] >= low[1]}
    front = sorted((signs[0] * a, signs[1] * b) for a, b in gains - dominated)
    path = " ".join(f"{x_scale(a):.1f},{y_scale(b):.1f}" for a, b in front)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{SOFT}" stroke-dasharray="4 4"/>')
    spots: dict[tuple[int, int], list[Dot]] = {}
    lines = [f"{name}: {x.title} {_mean_text(x, a)}, {y.title} {_mean_text(y, b)}" for name, a, b in points]
    for number, name, a, b in drawn:
        colour, cx, cy = COLOURS[number % len(COLOURS)], x_scale(a[0]), y_scale(b[0])
        spots.setdefault((round(cx / 4), round(cy / 4)), []).append((cx, cy, number, name))
        bars = [_line(x_scale(a[1]), cy, x_scale(a[2]), cy, colour)] if a[1:] else []
        bars += [_line(cx, y_scale(b[1]), cx, y_scale(b[2]), colour)] if b[1:] else []
        dot = f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="7" fill="{colour}" stroke="{PAPER}" stroke-width="2"/>'
        parts.append(_group({"class": "point", "data-flow": str(number)}, lines[number], [*bars, dot]))
    parts += _labels([*spots.values()], height - bottom)
    parts += [_text(0, 36, f"↑ {y.title}", SOFT), _text(WIDTH, height - 26, f"{x.title} →", SOFT, "end")]
    best = max((signs[1] * b[0] for *_, b in drawn), default=0.0)
    leaders = " = ".join(name for _, name, _, b in drawn if round(signs[1] * b[0] - best, 3) == 0)
    most = "Highest" if y.better == "higher" else "Lowest"
    digits = ".2f" if y.is_bounded else ".3g"
    title = f"{most} mean {y.title}: {leaders}, {abs(best):{digits}}" if drawn else f"{y.title} against {x.title}"
    return Picture(title, _svg(title, content.caption, height, parts), "\n".join(map(escape_block, lines)))


def _labels(spots: Sequence[Sequence[Dot]], bottom: float) -> Iterator[str]:
    """Yield a name for each position of dots, clear of dots and other names; a line leads to a distant name."""
    boxes = [(x - 8, x + 8, y) for dots in spots for x, y, *_ in dots]
    for dots in spots:
        x, y, number, _ = dots[0]
        name, colour = " = ".join(dot[3] for dot in dots), COLOURS[number % len(COLOURS)]
        wide = min(WIDTH - 4.0, len(name) * LETTER)
        left = max(2.0, min(x - wide / 2, WIDTH - wide - 2))
        close = [at for a, b, at in boxes if left < b and left + wide > a]
        levels = (y + way * (18 + 14 * step) for step in range(24) for way in (-1, 1))
        clear = (at for at in levels if 40 < at < bottom - 7 and all(abs(at - other) > 15 for other in close))
        boxes.append((left, left + wide, level := next(clear, y - 18)))
        if abs(level - y) > 24:
            yield _line(x, y, left + wide / 2, level, colour, 0.7)
        yield _text(left + wide / 2, level + 4, name, colour, "middle", bold=True, room=wide)


def forest(content: Content, pairs: Sequence[FlowPair], *, primary: bool = True) -> Picture:
    """Draw paired differences of primary or of other measures; right is better, costs are shares of A's mean."""
    parts, lines, y = [], [], 18.0
    middle, half, names = 226.0, 84.0, [side.name for side in content.sides]
    rows_of_pairs = [
        [(d, *_scaled(d)) for d in pair.differences if d.primary is primary and _is_drawn(d)] for pair in pairs
    ]
    rows = [row for scaled in rows_of_pairs for row in scaled]
    edges = {True: 0.1, False: 0.1}
    for d, _, ends in rows:  # one scale for all pairs
        if d.ci95:
            edges[d.measure.is_bounded] = max(edges[d.measure.is_bounded], *map(abs, ends))
    for pair, scaled in zip(pairs, rows_of_pairs, strict=True):
        y += 28
        flows = f"{names.index(pair.a)} {names.index(pair.b)}"
        parts.append(_text(0, y, f"{pair.b} against {pair.a}", INK, bold=True))
        y = top = y + 8
        for d, center, ends in scaled:
            y += 22
            low, high, mark = (middle + half * end / edges[d.measure.is_bounded] for end in (*ends, center))
            colour, words = _look(d)
            lines.append(_sentence(pair, d))
            row = [
                f'<rect x="0" y="{y - 15:.1f}" width="{WIDTH}" height="22" fill="transparent"/>',
                _text(0, y, d.measure.title, INK, room=middle - half - 8),
                _text(middle + half + 8, y, words, colour, room=WIDTH - middle - half),
            ]
            if d.ci95:
                row.append(_line(low, y - 4, high, y - 4, colour, 2))
                row.append(f'<rect x="{mark - 4:.1f}" y="{y - 8:.1f}" width="8" height="8" fill="{colour}"/>')
            data = {"class": "difference", "data-pair": flows, "data-measure": d.measure.name}
            data["data-show"] = "flipped" if d.measure.better == "higher" and d.changed else "all"
            parts.append(_group(data, lines[-1], row))
        parts.append(_line(middle, top + 6, middle, y + 4, SOFT))
    units = f"longest bars: {edges[True]:.2g} for scores, {edges[False]:.0%} for costs; amber: shown, but crosses 0"
    parts += [_text(middle, y + 22, DIRECTIONS, SOFT, "middle"), _text(0, y + 46, units, SOFT)]
    shown = [([d.is_shown for d, *_ in rows if d.measure.is_bounded is score], score) for score in (True, False)]
    counts = [f"{sum(own)} of {len(own)} {'scores' if score else 'costs'}" for own, score in shown if own]
    title = f"Differences shown by a test: {', '.join(counts)}"
    return Picture(title, _svg(title, content.caption, y + 68, parts), "\n".join(map(escape_block, lines)))


class _Scale:
    """Maps values to pixels, with round ticks; an axis contains 0."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = min([*values, 0.0]), max([*values, 0.0])
        room = (high - low) * 0.08 or 0.5
        self.low, self.high = low - room * (low < 0), high + room
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


def _scaled(d: MeasureVerdict) -> tuple[float, tuple[float, float]]:
    """Return the difference and its interval, positive if better; a cost is a share of the first flow's mean."""
    assert d.difference is not None
    # If A's mean is 0, the difference itself is the scale.
    scale = 1.0 if d.measure.is_bounded else 1 / (abs(d.a or 0) or abs(d.difference) or 1)
    scale *= 1 if d.measure.better == "higher" else -1
    low, high = sorted(end * scale for end in d.ci95 or (d.difference, d.difference))
    return d.difference * scale, (low, high)


def _look(d: MeasureVerdict) -> tuple[str, str]:
    """Return colour and words of a difference; amber if a test shows it, but its interval contains 0."""
    assert d.difference is not None
    if not d.is_shown and d.conversations < MIN_DIFFERING:
        return SOFT, f"{d.n} turn{'' if d.n == 1 else 's'}: too few"
    score = format_number(float(f"{d.difference:.2g}"), "+")
    # A cost has no sign, because the bar of a dearer flow is on the left.
    ratio = f"{abs(d.difference / (d.a or 1)):.0%} {'more' if d.difference > 0 else 'less'},"
    change = score if d.measure.is_bounded or not d.a or not d.difference else ratio
    often = "more often " if d.claim == "more often" else ""
    colour = {"better": GOOD, "worse": BAD}.get(d.kind, SOFT)
    if d.is_shown and d.ci95 and d.ci95[0] <= 0 <= d.ci95[1]:
        colour = MID
    return colour, f"{change} {often}{VERDICTS.get(d.kind, d.kind)}"


def _is_drawn(d: MeasureVerdict) -> bool:
    """Return False for unknown differences, and for dollars of flows without a price."""
    return d.difference is not None and (d.measure.name != "cost_usd" or bool(d.a or d.b))


def _sentence(pair: FlowPair, d: MeasureVerdict) -> str:
    change = " ".join(filter(None, (format_number(d.difference, "+"), d.interval)))
    return f"{pair.b} - {pair.a}, {d.measure.title}: {change} (n={d.n}): {d.words}"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.2) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _text(
    x: float, y: float, text: str, fill: str, anchor: str = "", *, bold: bool = False, room: float = WIDTH
) -> str:
    """Return a text; one wider than `room` is drawn narrower, never truncated."""
    look = f' font-weight="600" paint-order="stroke" stroke="{PAPER}" stroke-width="4"' if bold else ""
    if len(text) * LETTER > room:
        look += f' textLength="{room:.1f}" lengthAdjust="spacingAndGlyphs"'
    position = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor or "start"}"'
    return f'<text {position} fill="{fill}"{look}>{as_html(one_line(text))}</text>'


def _group(attributes: dict[str, str], label: str, parts: Sequence[str]) -> str:
    facts = " ".join(f'{name}="{as_html(text)}"' for name, text in attributes.items())
    return f"<g {facts}><title>{as_html(one_line(label))}</title>{''.join(parts)}</g>"


def _svg(title: str, caption: str, height: float, parts: Sequence[str]) -> str:
    """Return the SVG, with its title above and `caption` below the drawing."""
    box = f'x="-12" y="-8" width="{WIDTH + 24}" height="{height + 16:.0f}"'
    size = f'viewBox="-12 -8 {WIDTH + 24} {height + 16:.0f}" width="{WIDTH + 24}" height="{height + 16:.0f}"'
    font = 'role="group" font-family="system-ui, sans-serif" font-size="13"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}><title>{as_html(one_line(title))}</title>'
    frame = [f'<rect {box} rx="8" fill="{PAPER}"/>', f'<g class="finding">{_text(0, 14, title, INK, bold=True)}</g>']
    return "".join([head, *frame, *parts, _text(0, height, caption, SOFT), "</svg>"])
