// What is shown is taken in, drawn, and while a run goes on taken in anew: `agentlab view` answers with the page's data once
// there is more of it. What was chosen stays, by its name; an open trace is left alone until it is closed.
const OFTEN = 1000;

// After another choice of flows.
function render() {
  const label = document.activeElement?.closest("svg") && document.activeElement.getAttribute("aria-label");
  drawTop();
  drawPlot();
  drawForest();
  drawPhases();
  refilter();
  if (label) document.querySelector(`svg [aria-label="${CSS.escape(label)}"]`)?.focus({ preventScroll: true });
}

// After another choice of turns; what had the focus has it again.
function refilter() {
  const element = document.activeElement?.closest("#filters, #slices") && document.activeElement;
  const [kind, text] = element ? [element.tagName, (element.closest("label") || element).firstChild.textContent] : [];
  drawSlices();
  drawFilters();
  drawMatrix();
  const same = (each) => (each.closest("label") || each).firstChild.textContent === text;
  if (element) [...document.querySelectorAll(`#filters ${kind}, #slices ${kind}`)].find(same)?.focus();
}

function derive(data) {
  D = data;
  playsOf = D.flows.map((_, flow) => all(D.plays.length).filter((play) => D.plays[play].flow === flow));
  playedBy = playsOf.map((plays) => plays.reduce((sum, play) => sum + all(D.rows.turn.length).filter((row) => at(D.plays[play].there, row)).length, 0) || 1);
  qualities = all(D.measures.length).filter((m) => D.measures[m].quality);
  deciding = qualities.filter((m) => D.measures[m].decides);
  failedAt = indexOf("failed");
  struck = {};
  for (const cause of D.causes) {
    const rows = (struck[cause.kind] ??= new Map());
    cause.rows = new Map();
    for (const [flow, row] of cause.at) for (const map of [rows, cause.rows]) map.set(row, (map.get(row) || new Set()).add(flow));
  }
  for (const cache of [chunks, pages, conversations, columns, groups]) cache.clear();
}

const known = (m) => D.means.every((means) => means[m]?.[0] != null);

function begin() {
  // What was shown to differ tells more than what comes first.
  const shown = D.pairs.flatMap((pair) => pair.differences).filter((d) => ["B better", "B worse"].includes(d.reading)).map((d) => d.measure);
  state.measure = deciding.find((m) => shown.includes(m)) ?? deciding[0] ?? qualities[0] ?? failedAt;
  state.y = state.measure;
  const dollars = indexOf("cost_usd"), tokens = indexOf("input_tokens"), cheap = D.measures.findIndex((m) => m.decides && !m.quality);
  state.x = dollars >= 0 && D.means.every((means) => means[dollars][0]) ? dollars : tokens >= 0 && known(tokens) ? tokens : Math.max(0, cheap);
}

function draw() {
  byId("main").hidden = !D.rows.turn.length;
  if (!D.rows.turn.length) return drawTop();
  drawTrouble();
  drawOrigin();
  render();
}

// The same choices in new data, where measures, flows and causes may have other numbers.
function takeOver(data) {
  const measures = ["measure", "x", "y"].map((key) => [key, D.measures[state[key]]?.name]);
  const flows = [...state.flows].map((flow) => D.flows[flow]), cause = state.cause === "" ? null : D.causes[state.cause];
  const first = !D.rows.turn.length, drawn = rowsDrawn, top = scrollY;
  derive(data);
  begin();
  for (const [key, name] of first ? [] : measures) if (indexOf(name) >= 0) state[key] = indexOf(name);
  state.flows = new Set(flows.map((name) => D.flows.indexOf(name)).filter((flow) => flow >= 0));
  const same = cause ? D.causes.findIndex((each) => each.kind === cause.kind && each.text === cause.text) : -1;
  state.cause = same < 0 ? "" : String(same);
  if (state.slice) {
    const [name, value] = JSON.parse(state.slice);
    if (!D.rows.slices[name]?.includes(value)) state.slice = "";
  }
  draw();
  while (rowsDrawn < Math.min(drawn, rowsFound.length)) more(byId("matrix").querySelector(".end"));
  scrollTo(0, top);
}

const closed = () => (drawer.open ? new Promise((go) => drawer.addEventListener("close", go, { once: true })) : null);

async function follow() {
  while (D.live) {
    try {
      const answer = await fetch(`data?after=${D.live.version}`);
      if (answer.status === 200) { const data = await answer.json(); await closed(); takeOver(data); }
      else if (answer.status !== 204) throw new Error(answer.statusText);
    } catch {
      byId("live").textContent = "agentlab view has ended: this is what it showed last";
      return;
    }
    await new Promise((go) => setTimeout(go, OFTEN));
  }
}

derive(JSON.parse(byId("data").textContent));
begin();
draw();
byId("matrix").addEventListener("keydown", moveThrough);
drawer.addEventListener("close", () => opener?.focus());
drawer.addEventListener("click", (event) => event.target === drawer && drawer.close());
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawPlot(); drawForest(); } });
follow();
