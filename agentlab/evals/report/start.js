// Redraws after a change of the chosen flows.
function render() {
  drawTop();
  drawFigures();
  refilter();
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
  seriesOf = D.flows.map((_, flow) => all(D.series.length).filter((one) => D.series[one].flow === flow));
  qualities = all(D.measures.length).filter((m) => D.measures[m].quality);
  primary = qualities.filter((m) => D.measures[m].primary);
  failedAt = indexOf("failed");
  struck = {};
  for (const cause of D.causes) {
    const rows = (struck[cause.kind] ??= new Map());
    cause.name = cause.kind;
    if (cause.kind === "reply cut") [cause.name, cause.text] = [`reply cut ${cause.text}`, "max_tokens ended it"];
    cause.rows = new Map();
    // A right reply with a wrong step is no bad reply; a cut reply counts either way.
    cause.right = cause.at.filter(([flow, row]) => D.verdict.measure && cell(flow, row, D.axis) >= 0.5);
    const right = new Set(cause.right);
    cause.counted = cause.kind === "reply cut" ? cause.at : cause.at.filter((each) => !right.has(each));
    for (const [flow, row] of cause.at) for (const map of [rows, cause.rows]) map.set(row, (map.get(row) || new Set()).add(flow));
  }
  D.causes.sort((a, b) => (a.kind === "reply cut") - (b.kind === "reply cut") || b.counted.length - a.counted.length);
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
state.measure = D.axis;
beginFigures();
draw();
addEventListener("keydown", moveInGroup);
drawer.addEventListener("close", () => opener?.focus());
drawer.addEventListener("click", (event) => event.target === drawer && drawer.close());
