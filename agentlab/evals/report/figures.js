// Shared parts of the page: data, elements that take untrusted text as text only, chosen flows and turns, and what the
// figures do, which Python draws.
"use strict";

let D = null;  // data of the page; start.js reads it
let seriesOf = [];
const byId = (id) => document.getElementById(id);
const all = (count) => [...Array(count).keys()];
const state = { flows: new Set(), measure: 0, show: "all", cause: "", slice: "" };
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

// Copies a figure as it is drawn, in the colours of a light page: other programs know no variables.
async function copied(figure, type) {
  const text = new XMLSerializer().serializeToString(figure.querySelector("svg")).replace(/var\([^,]*, (#\w+)\)/g, "$1");
  const source = new Blob([text], { type: "image/svg+xml" }), image = new Image(), canvas = document.createElement("canvas");
  image.src = URL.createObjectURL(source);
  await image.decode();
  Object.assign(canvas, { width: 2 * image.width, height: 2 * image.height }).getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = type === "SVG" ? source : await new Promise((done) => canvas.toBlob(done, "image/png"));
  // A page without the permission to write to the clipboard saves the file.
  const save = () => h("a", { href: URL.createObjectURL(blob), download: `${figure.id}.${type.toLowerCase()}` }).click();
  await (type === "SVG" ? navigator.clipboard.writeText(text) : navigator.clipboard.write([new ClipboardItem({ "image/png": blob })])).catch(save);
}

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
const flowName = (flow) => h("span", { class: flowClass(flow) }, h("i", { class: "dot" }), D.flows[flow].split(/(?<=_)/).map((part) => [part, h("wbr")]));

function toggleFlow(flow) {
  if (!state.flows.delete(flow)) state.flows.add(flow);
  if (state.flows.size === D.flows.length) state.flows.clear();
  render();
}

// Shows the turns of the two flows of a difference.
function showPair({ pair, measure, show }) {
  const m = indexOf(measure);
  Object.assign(state, { measure: D.measures[m].quality ? m : state.measure, show, slice: "", cause: "", flows: new Set(pair.split(" ").map(Number)) });
  render();
  byId("matrix-title").scrollIntoView();
}

// Tokens and seconds of a turn, by flow and phase, drawn like the figures of Python.
function drawPhases() {
  const used = D.phase_order.filter((phase) => D.phases.some((each) => each[phase])), parts = [];
  const hue = (phase) => getComputedStyle(document.body).getPropertyValue(`--p${D.phase_order.indexOf(phase) % 9}`).trim();
  const text = (x, y, words, props) => parts.push(svg("text", { x, y, fill: "var(--ink, #1d1f24)", ...props }, words));
  const block = (x, y, width, phase, title) => parts.push(svg("rect", { x, y, width, height: 14, fill: hue(phase) }, svg("title", {}, title)));
  const left = Math.min(190, 16 + 8 * Math.max(...D.flows.map((name) => name.length)));
  let y = 0, x = 0;
  for (const [unit, of] of [["tokens", (part) => (part.input_tokens || 0) + (part.output_tokens || 0)], ["seconds", (part) => part.seconds || 0]]) {
    const rows = D.flows.map((_, flow) => used.map((phase) => [phase, of(D.phases[flow][phase] || {}) / (all(D.rows.turn.length).reduce((sum, row) => sum + seriesOf[flow].filter((one) => at(D.series[one].has_turn, row)).length, 0) || 1)]));
    const sums = rows.map((row) => row.reduce((sum, [, value]) => sum + value, 0)), most = Math.max(...sums) || 1;
    text(0, (y += 16), `${unit} per turn`, { "font-weight": 600 });
    rows.forEach((row, flow) => {
      text(0, (y += 22), D.flows[flow], 8 * D.flows[flow].length > left - 8 ? { textLength: left - 8, lengthAdjust: "spacingAndGlyphs" } : {});
      text(480, y, unit === "seconds" ? took(sums[flow]) : number(sums[flow]), { "text-anchor": "end" });
      row.reduce((start, [phase, value]) => { const width = ((410 - left) * value) / most; block(start, y - 12, width, phase, `${phase}: ${number(value)} ${unit} per turn`); return start + width; }, left);
    });
    y += 10;
  }
  y += 18;
  for (const phase of used) {
    const width = 26 + 7.4 * phase.length;
    if (x + width > 480) [x, y] = [0, y + 20];
    block(x, y - 11, 14, phase, phase);
    text(x + 18, y, phase.replace("_", " "));
    x += width;
  }
  text(0, (y += 28), byId("phases").dataset.caption, { fill: "var(--soft, #5c616b)" });
  const box = { x: -12, y: -8, width: 504, height: y + 16 };
  byId("phases").append(svg("svg", { xmlns: "http://www.w3.org/2000/svg", role: "group", viewBox: Object.values(box).join(" "), width: box.width, height: box.height, "font-family": "system-ui, sans-serif", "font-size": 13 }, svg("rect", { ...box, rx: 8, fill: "var(--card, #fbfaf7)" }), parts));
}

// Draws the figures; their dots and rows become buttons.
function beginFigures() {
  for (const figure of document.querySelectorAll(".figure[data-svg^='<']")) figure.append(document.adoptNode(new DOMParser().parseFromString(figure.dataset.svg, "image/svg+xml").documentElement));
  drawPhases();
  for (const figure of document.querySelectorAll(".figure:has(svg)")) {
    const each = figure.querySelectorAll(".point, .difference"), copy = (type) => h("button", { type: "button", onclick: () => copied(figure, type) }, `copy as ${type}`);
    for (const part of each) pressable(part, `${part.querySelector("title").textContent}; click for its turns`, () => (part.dataset.flow ? toggleFlow(+part.dataset.flow) : showPair(part.dataset)));
    fill(figure, { "data-roving": each.length > 0 }, [h("p", { class: "note figure-note" }, copy("SVG"), " ", copy("PNG"))]);
  }
  const others = h("details", {}, h("summary", {}, "All other measures"));
  byId("others").before(others);
  others.append(byId("others"));
}

// Fades the flows that are not chosen.
function drawFigures() {
  for (const part of document.querySelectorAll(".figure [data-flow]")) {
    const picked = state.flows.has(+part.dataset.flow);
    part.classList.toggle("faded", state.flows.size > 0 && !picked);
    if (part.matches(".point")) part.setAttribute("aria-pressed", String(picked));
  }
}
