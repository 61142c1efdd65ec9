// Redraws after a change of the chosen flows.
function render() {
  const label = document.activeElement?.closest("svg") && document.activeElement.getAttribute("aria-label");
  drawTop();
  drawPlot();
  drawForest();
  drawPhases();
  refilter();
  if (label) document.querySelector(`svg [aria-label="${CSS.escape(label)}"]`)?.focus({ preventScroll: true });
}

// Redraws after a change of the chosen turns, and restores the focus.
function refilter() {
  const element = document.activeElement?.closest("#filters, #slices") && document.activeElement;
  const [kind, text] = element ? [element.tagName, (element.closest("label") || element).firstChild.textContent] : [];
  drawSlices();
  drawFilters();
  drawMatrix();
  const same = (each) => (each.closest("label") || each).firstChild.textContent === text;
  rove();
  if (element) [...document.querySelectorAll(`#filters ${kind}, #slices ${kind}`)].find(same)?.focus();
}

function derive() {
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
}

const known = (m) => D.means.every((means) => means[m]?.[0] != null);

function begin() {
  const answer = indexOf(D.verdict.measure), dollars = indexOf("cost_usd"), tokens = indexOf("input_tokens");
  state.y = state.measure = answer >= 0 ? answer : deciding[0] ?? qualities[0] ?? failedAt;
  state.x = dollars >= 0 && D.means.every((means) => means[dollars][0]) ? dollars : tokens >= 0 && known(tokens) ? tokens : Math.max(0, D.measures.findIndex((m) => m.decides && !m.quality));
}

function draw() {
  byId("main").hidden = !D.rows.turn.length;
  if (!D.rows.turn.length) return drawTop();
  drawTrouble();
  drawOrigin();
  render();
}

D = JSON.parse(byId("data").textContent);
derive();
begin();
draw();
addEventListener("keydown", moveInGroup);
drawer.addEventListener("close", () => opener?.focus());
drawer.addEventListener("click", (event) => event.target === drawer && drawer.close());
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawPlot(); drawForest(); } });
