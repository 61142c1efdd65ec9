// Shared parts of the page (data, elements that take untrusted text as text only, chosen flows and turns), and the
// figures: cost against quality, the forest of paired differences, tokens and seconds by phase.
"use strict";

let D = null;  // data of the page; start.js reads it
let playsOf = [], playedBy = [];
const byId = (id) => document.getElementById(id);
const all = (count) => [...Array(count).keys()];
const state = { flows: new Set(), x: 0, y: 0, measure: 0, show: "all", cause: "", slice: "", everything: false };
// The chosen flows; those that a chosen cause affects come first.
function chosen() {
  const flows = all(D.flows.length).filter((flow) => !state.flows.size || state.flows.has(flow));
  const affected = new Set(state.cause === "" ? [] : D.causes[state.cause].at.map(([flow]) => flow));
  return [...flows.filter((flow) => affected.has(flow)), ...flows.filter((flow) => !affected.has(flow))];
}
const at = (column, row) => (Array.isArray(column) ? column[row] : column);

// An element; strings among the children become text, never markup.
const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const svg = (tag, props, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

function number(value, measure) {
  if (value == null) return "–";
  if (measure && measure.quality) return value.toFixed(2);
  const size = Math.abs(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return size >= 100 ? Math.round(value).toLocaleString("en") : size >= 10 ? value.toFixed(1) : String(+value.toPrecision(3));
}

// Formats seconds; less than 0.1 s becomes milliseconds.
function took(seconds) {
  if (seconds == null) return "? s";
  return seconds >= 0.1 || !seconds ? `${number(+seconds.toFixed(2))} s` : `${number(+(seconds * 1000).toPrecision(2))} ms`;
}

// Width of a text in a figure, in pixels.
const ruler = document.createElement("canvas").getContext("2d");
const wide = (text, bold) => { ruler.font = `${bold ? "600 " : ""}12px system-ui, sans-serif`; return ruler.measureText(text).width; };
// A name that is too long is drawn narrower, never truncated.
const squeezed = (text, room, bold) => (wide(text, bold) > room ? { textLength: room, lengthAdjust: "spacingAndGlyphs" } : {});
// A measure whose values are shares, also if less is better.
const isShare = (measure) => measure.quality || measure.name === "failed";

// The title of a figure states its finding; the buttons copy the drawing as it stands.
function titled(id, finding) {
  byId(`${id}-title`).textContent = finding;
  const copy = (type) => h("button", { type: "button", onclick: () => copied(id, type) }, `copy as ${type}`);
  return h("p", { class: "note figure-note" }, `n = ${D.rows.turn.length} turns, ${D.rows.conversations.length} conversations; ${(D.runs[0].started || "").slice(0, 10)} `, copy("SVG"), copy("PNG"));
}

// The drawings of a figure below its title as one SVG, with the styles of the page.
function drawing(id) {
  const parts = [...byId(id).querySelectorAll("svg")].map((part) => part.cloneNode(true)), title = byId(`${id}-title`).textContent;
  const height = parts.reduce((top, part) => { part.setAttribute("y", top); return top + +part.getAttribute("height"); }, 24);
  const width = Math.max(wide(title, true), ...parts.map((part) => +part.getAttribute("width"))), box = { x: -8, y: -4, width: width + 16, height: height + 8 };
  const style = svg("style", {}, document.querySelector("style").textContent);
  return svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: box.width, height: box.height, viewBox: Object.values(box).join(" "), "font-family": "sans-serif" }, style, svg("rect", { ...box, fill: "var(--card)" }), svg("text", { y: 12, class: "name" }, title), parts);
}

async function copied(id, type) {
  const text = new XMLSerializer().serializeToString(drawing(id)), source = new Blob([text], { type: "image/svg+xml" });
  const image = new Image(), canvas = document.createElement("canvas");
  image.src = URL.createObjectURL(source);
  await image.decode();
  Object.assign(canvas, { width: 2 * image.width, height: 2 * image.height }).getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = type === "SVG" ? source : await new Promise((done) => canvas.toBlob(done, "image/png"));
  // A page without the permission to write to the clipboard saves the file.
  const save = () => h("a", { href: URL.createObjectURL(blob), download: `${id}.${type.toLowerCase()}` }).click();
  await (type === "SVG" ? navigator.clipboard.writeText(text) : navigator.clipboard.write([new ClipboardItem({ "image/png": blob })])).catch(save);
}

const signed = (value, measure) => (value > 0 ? "+" : "") + number(value, measure);
const percent = (share) => `${share > 0 ? "+" : ""}${Math.round(100 * share)} %`;

// Makes an element a button for mouse and keyboard, also inside a figure.
function pressable(element, label, act, pressed) {
  fill(element, { role: "button", tabindex: 0, "aria-label": label, "aria-pressed": pressed == null ? null : String(pressed) }, []);
  element.addEventListener("click", act);
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); }
  });
  return element;
}

function select(label, options, value, act) {
  const list = h("select", { onchange: () => act(list.value) }, options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
  return h("label", {}, label, " ", list);
}

const flowClass = (flow) => `flow f${flow % 8}`;
const flowName = (flow) => h("span", { class: flowClass(flow) }, h("i", { class: "dot" }), D.flows[flow]);

function toggleFlow(flow) {
  if (!state.flows.delete(flow)) state.flows.add(flow);
  if (state.flows.size === D.flows.length) state.flows.clear();
  render();
}

function ticks(low, high) {
  const raw = (high - low) / 4 || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw);
  const steps = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) steps.push(+tick.toPrecision(12));
  return steps;
}

function drawPlot() {
  const [mx, my] = [D.measures[state.x], D.measures[state.y]];
  const points = all(D.flows.length).map((flow) => ({ flow, x: D.means[flow][state.x], y: D.means[flow][state.y] })).filter((p) => p.x[0] != null && p.y[0] != null);
  const axes = (quality) => D.measures.map((m, i) => [i, m.title, m]).filter(([, , m]) => m.quality === quality);
  const options = [...axes(false), ...axes(true)];
  const head = h("div", { class: "axes" }, select("across", options, state.x, (v) => { state.x = +v; drawPlot(); }), select("up", [...axes(true), ...axes(false)], state.y, (v) => { state.y = +v; drawPlot(); }));
  const width = Math.max(280, byId("plot").clientWidth), height = 290, left = 52, right = 16, top = 34, bottom = 42;
  const range = (axis, measure) => {
    const ends = points.flatMap((p) => [p[axis][0], ...(p[axis][1] || [])]);
    const low = Math.min(...ends, 0), high = Math.max(...ends), room = (high - low) * 0.08 || (measure.quality ? 0.1 : 0.5);
    return [low < 0 ? low - room : low, measure.quality && high <= 1 ? Math.min(high + room, 1.02) : high + room];
  };
  const [x0, x1] = range("x", mx), [y0, y1] = range("y", my);
  const X = (value) => left + ((value - x0) / (x1 - x0)) * (width - left - right);
  const Y = (value) => height - bottom - ((value - y0) / (y1 - y0)) * (height - top - bottom);
  const grid = [
    ...ticks(x0, x1).map((t) => [svg("line", { class: "grid", x1: X(t), x2: X(t), y1: top, y2: height - bottom }), svg("text", { x: X(t), y: height - bottom + 16, "text-anchor": "middle" }, number(t))]),
    ...ticks(y0, y1).map((t) => [svg("line", { class: "grid", x1: left, x2: width - right, y1: Y(t), y2: Y(t) }), svg("text", { x: left - 6, y: Y(t) + 4, "text-anchor": "end" }, number(t))]),
  ];
  const good = (measure, value) => (measure.higher ? value : -value);
  const beats = (p, q) => good(mx, p.x[0]) >= good(mx, q.x[0]) && good(my, p.y[0]) >= good(my, q.y[0]) && (p.x[0] !== q.x[0] || p.y[0] !== q.y[0]);
  const front = points.filter((q) => !points.some((p) => beats(p, q))).sort((p, q) => p.x[0] - q.x[0]);
  const line = front.map((p) => `${X(p.x[0])},${Y(p.y[0])}`).join(" ");
  // Flows at one position are one dot; labels keep clear of dots, labels and edges, and a line leads to a distant one.
  const spots = Map.groupBy(points, (p) => `${Math.round(X(p.x[0]) / 4)} ${Math.round(Y(p.y[0]) / 4)}`);
  const blocks = points.map((p) => [X(p.x[0]) - 8, Y(p.y[0]) - 8, X(p.x[0]) + 8, Y(p.y[0]) + 8]);
  const labels = [...spots.values()].map((group) => {
    const text = group.map((p) => D.flows[p.flow]).join(" = "), [x, y] = [X(group[0].x[0]), Y(group[0].y[0])], w = Math.min(width - 4, wide(text, true));
    const boxes = all(24).flatMap((k) => [[-w / 2, -13], [-w / 2, 22], [12, 4], [-w - 12, 4]].map(([dx, dy]) => [x + dx, y + dy + Math.sign(dy - 4) * 14 * k])).map(([begin, line]) => [Math.max(Math.min(left + 3, width - w - 2), Math.min(width - w - 2, begin)), line - 11]).map(([begin, up]) => [begin, up, begin + w, up + 14]);
    const box = boxes.find(([l, t, r, b]) => t > top - 20 && b < height - bottom && !blocks.some((o) => l < o[2] && r > o[0] && t < o[3] && b > o[1])) || boxes[0];
    blocks.push(box);
    const far = Math.abs((box[1] + box[3]) / 2 - y) > 24;
    return svg("g", { class: flowClass(group[0].flow) }, far && svg("line", { class: "leader", x1: x, y1: y, x2: (box[0] + box[2]) / 2, y2: box[1] < y ? box[3] : box[1] }), svg("text", { class: "name", x: box[0], y: box[3] - 3, ...squeezed(text, width - 4, true) }, text));
  });
  const dots = points.map((p) => {
    const [x, y, [, ci], [, cj]] = [X(p.x[0]), Y(p.y[0]), p.x, p.y];
    const label = `${D.flows[p.flow]}: ${mx.title} ${number(p.x[0], mx)}, ${my.title} ${number(p.y[0], my)}`, picked = state.flows.has(p.flow);
    return pressable(
      svg("g", { class: `${flowClass(p.flow)} point${state.flows.size && !picked ? " faded" : ""}` },
        svg("title", {}, label),
        ci && svg("line", { class: "bar", x1: X(ci[0]), x2: X(ci[1]), y1: y, y2: y }),
        cj && svg("line", { class: "bar", x1: x, x2: x, y1: Y(cj[0]), y2: Y(cj[1]) }),
        svg("circle", { cx: x, cy: y, r: 7 })),
      `${label}; click to show only this flow`, () => toggleFlow(p.flow), picked);
  });
  const names = [svg("text", { class: "axis", x: width - right, y: height - 6, "text-anchor": "end" }, `${mx.title} →`), svg("text", { class: "axis", x: 0, y: 12 }, `↑ ${my.title}`)];
  const figure = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Flows by cost and quality", "data-roving": true }, grid, svg("polyline", { class: "front", points: line }), names, dots, labels);
  const best = points.reduce((p, q) => (good(my, q.y[0]) > good(my, p.y[0]) ? q : p), points[0]);
  byId("plot").replaceChildren(head, figure, titled("plot", best ? `${D.flows[best.flow]} has the best ${my.title}: ${number(best.y[0], my)}` : "Cost against quality"), h("p", { class: "note" }, `Bars are 95 % intervals over conversations; ${front.length > 1 ? "the dashed line joins the flows that are each best at something" : `${front.length ? D.flows[front[0].flow] : "none"} is at least as good as every other flow in both`}. Click a flow to show only that flow below.`));
}

function drawForest() {
  const pairs = D.pairs.filter((pair) => !state.flows.size || chosen().some((flow) => [pair.a, pair.b].includes(D.flows[flow])));
  if (!D.pairs.length) return byId("forest").replaceChildren(h("p", { class: "note" }, "Nothing to compare: the page has one flow."));
  const width = Math.max(280, byId("forest").clientWidth);
  const rowsOf = (pair) => {
    const base = D.means[D.flows.indexOf(pair.a)];
    return pair.differences.filter((d) => D.measures[d.measure].decides || state.everything).filter((d) => state.everything || d.ci95 || d.difference).map((d) => {
      const measure = D.measures[d.measure], mean = base && base[d.measure][0], sign = measure.higher ? 1 : -1;
      // A base of 0 has no share: the scale is the other mean.
      const scale = isShare(measure) ? 1 : 1 / (Math.abs(mean) || Math.abs(d.difference) || 1);
      const ends = (d.ci95 || [d.difference, d.difference]).map((end) => end * scale * sign).sort((a, b) => a - b);
      return { d, measure, scale, center: d.difference * scale * sign, ends };
    });
  };
  const shownRows = pairs.map(rowsOf), every = shownRows.flat();
  // One scale for all pairs, so that bars can be compared from one to the next.
  const span = (quality) => Math.max(0.1, ...every.filter((r) => isShare(r.measure) === quality).flatMap((r) => r.ends.map(Math.abs)));
  const spans = { true: span(true), false: span(false) };
  const nameEnd = Math.min(width * 0.42, Math.max(90, ...every.map((r) => wide(r.measure.title) + 10))), numberStart = width - 112;
  const middle = (nameEnd + numberStart) / 2, half = (numberStart - nameEnd) / 2 - 8;
  const blocks = pairs.map((pair, place) => {
    const rows = shownRows[place], base = D.means[D.flows.indexOf(pair.a)];
    const height = rows.length * 24 + 22;
    const X = (row, value) => middle + (value / spans[isShare(row.measure)]) * half;
    const marks = rows.map((row, i) => {
      const y = 24 * i + 12, { d, measure } = row;
      const shown = { "B better": "better", "B worse": "worse" }[d.reading] || "unsure";
      const change = isShare(measure) || !base[d.measure][0] ? signed(d.difference, measure) : percent(d.difference * row.scale);
      const label = `${measure.title}: ${pair.b} minus ${pair.a} ${change}${d.interval && ` ${d.interval}`}, ${d.words}, n = ${d.n}`;
      const pick = () => { state.measure = measure.quality ? d.measure : state.measure; state.show = measure.quality && d.reading !== "unchanged" ? "flipped" : "all"; state.slice = state.cause = ""; state.flows = new Set([pair.a, pair.b].map((n) => D.flows.indexOf(n))); render(); byId("matrix-title").scrollIntoView(); };
      return pressable(svg("g", { class: `difference ${shown}` }, svg("title", {}, label),
        svg("rect", { class: "hit", x: 0, y: y - 12, width, height: 24 }),
        svg("text", { x: 0, y: y + 4, class: measure.decides ? "strong" : "", ...squeezed(measure.title, nameEnd - 8) }, measure.title),
        svg("line", { class: "bar", x1: X(row, row.ends[0]), x2: X(row, row.ends[1]), y1: y, y2: y }),
        svg("rect", { class: "mark", x: X(row, row.center) - 4, y: y - 4, width: 8, height: 8 }),
        svg("text", { x: numberStart + 6, y: y + 4, class: "figure" }, `${change} ${shown === "unsure" ? (d.reading === "unchanged" ? "=" : "?") : shown === "better" ? "▲ better" : "▼ worse"}`)), `${label}; click for the turns that are right in one, wrong in another`, pick);
    });
    const figure = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${pair.b} against ${pair.a}`, "data-roving": true },
      svg("line", { class: "zero", x1: middle, x2: middle, y1: 0, y2: height - 18 }), marks,
      svg("text", { x: middle - 6, y: height - 4, "text-anchor": "end" }, "← worse"), svg("text", { x: middle + 6, y: height - 4 }, "better →"));
    return h("div", { class: "forest" }, h("h3", {}, flowName(D.flows.indexOf(pair.b)), " against ", flowName(D.flows.indexOf(pair.a))), figure);
  });
  const more = h("button", { type: "button", "aria-pressed": String(state.everything), onclick: () => { state.everything = !state.everything; drawForest(); } }, state.everything ? "only primary measures" : "all measures");
  const shown = every.filter((r) => ["B better", "B worse"].includes(r.d.reading)).length;
  byId("forest").replaceChildren(...blocks, titled("forest", `${shown} of ${every.length} paired differences are shown`), h("p", { class: "note" }, more, ` Right of the line is better; ${D.estimand}. Qualities are differences (edge: ${number(spans.true)}), costs are shares of the other flow's mean (edge: ${Math.round(100 * spans.false)} %). = equal on every turn; ? no difference shown: the test adjusts for all primary measures, so a bar beside the line may not be enough. Click a row for the turns that are right in one flow and wrong in the other.`));
}

function drawPhases() {
  const used = D.phase_order.filter((phase) => chosen().some((flow) => D.phases[flow][phase]));
  const sums = [["tokens", (part) => (part.input_tokens || 0) + (part.output_tokens || 0)], ["seconds", (part) => part.seconds || 0]];
  const turns = (flow) => playedBy[flow];
  const blocks = sums.map(([unit, of]) => {
    const total = (flow) => used.reduce((sum, phase) => sum + (D.phases[flow][phase] ? of(D.phases[flow][phase]) : 0), 0) / turns(flow);
    const most = Math.max(...all(D.flows.length).map(total)) || 1;
    const lines = chosen().map((flow) => {
      const bar = h("span", { class: "stack" }, used.filter((phase) => D.phases[flow][phase]).map((phase) => {
        const value = of(D.phases[flow][phase]) / turns(flow), part = h("i", { class: `p${D.phase_order.indexOf(phase) % 9}`, title: `${phase}: ${number(value)} ${unit} per turn` });
        part.style.width = `${(100 * value) / most}%`;
        return part;
      }));
      const parts = used.filter((phase) => D.phases[flow][phase] && of(D.phases[flow][phase])).map((phase) => `${phase} ${number(of(D.phases[flow][phase]) / turns(flow))}`);
      return h("div", { class: "bars", role: "img", "aria-label": `${D.flows[flow]}: ${parts.join(", ")} ${unit} per turn` }, flowName(flow), bar, h("b", {}, unit === "seconds" ? took(total(flow)) : number(total(flow))));
    });
    return [h("h3", {}, `${unit} per turn`), h("div", { class: "stacks" }, lines)];
  });
  const legend = h("p", { class: "legend" }, used.map((phase) => h("span", {}, h("i", { class: `p${D.phase_order.indexOf(phase) % 9}` }), phase.replace("_", " "))));
  byId("phases").replaceChildren(...blocks.flat(2), legend);
}
