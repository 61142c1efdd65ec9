// The sections of the page: verdict, what went wrong, slices, the matrix of turns and flows, run details. Rows are added
// during scrolling, and their texts are inflated then.
const BATCH = 16, AHEAD = 280;
const FILTERS = [["all", "all turns"], ["failed", "failed turns"], ["flipped", "right in one, wrong in another"], ["disagree", "flows disagree"], ["reply cut", "turns with cut replies"], ["not recorded", "turns not recorded"]];
const WEAKEST = 3, LEAST_GRADED = 5, LEAST_CONVERSATIONS = 3;
let qualities = [], primary = [], failedAt = -1, struck = {};
const indexOf = (name) => D.measures.findIndex((measure) => measure.name === name);
const isStruck = (rows, row) => rows && rows.has(row) && chosen().some((flow) => rows.get(row).has(flow));

async function inflated(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text());
}

const chunks = new Map();
function textOf(row) {
  const chunk = Math.floor(row / D.rows_of_a_chunk);
  if (!chunks.has(chunk)) chunks.set(chunk, inflated(D.chunks[chunk]));
  return chunks.get(chunk).then((texts) => texts[row % D.rows_of_a_chunk]);
}

// The mean over the epochs of a flow; null if the measure does not apply to the turn.
const columns = new Map(), groups = new Map();
function cell(flow, row, m) {
  const own = seriesOf[flow], key = flow * D.measures.length + m;
  if (own.length === 1) return at(D.series[own[0]].values[m], row);
  if (!columns.has(key)) columns.set(key, all(D.rows.turn.length).map((each) => mean(own.map((one) => at(D.series[one].values[m], each)))));
  return columns.get(key)[row];
}

function mean(values) {
  const known = values.filter((value) => value != null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

// The rows of each value of a property.
function rowsBy(name) {
  if (!groups.has(name)) {
    const rows = new Map();
    D.rows.slices[name].forEach((value, row) => { if (!rows.has(value)) rows.set(value, []); rows.get(value).push(row); });
    groups.set(name, rows);
  }
  return groups.get(name);
}

function matches(row) {
  const flows = chosen(), m = state.measure;
  if (state.slice) {
    const [name, value] = JSON.parse(state.slice);
    if (D.rows.slices[name][row] !== value) return false;
  }
  if (state.cause !== "" && !isStruck(D.causes[state.cause].rows, row)) return false;
  if (state.show === "failed") return isStruck(struck.failed, row);
  if (state.show === "reply cut" || state.show === "not recorded") return isStruck(struck[state.show], row);
  if (state.show === "all") return true;
  const values = flows.flatMap((flow) => (state.show === "flipped" ? [cell(flow, row, m)] : seriesOf[flow].map((one) => at(D.series[one].values[m], row)))).filter((value) => value != null);
  if (state.show === "flipped") return values.some((value) => value < 0.5 !== values[0] < 0.5);
  return values.length > 1 && Math.max(...values) - Math.min(...values) >= 0.5;
}

// The rows to show, each with its order: failed turns first, then the worst values, then the largest differences.
const byOrder = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2] || a[3] - b[3];
function orderedRows(flows) {
  const isPlayed = (row) => flows.some((flow) => seriesOf[flow].some((one) => at(D.series[one].has_turn, row)));
  const failed = (row) => flows.some((flow) => isFailed(flow, row));
  return all(D.rows.turn.length).filter((row) => isPlayed(row) && matches(row)).map((row) => {
    const values = flows.map((flow) => cell(flow, row, state.measure)).filter((value) => value != null), low = Math.min(...values), high = Math.max(...values);
    return [failed(row) ? 0 : 1, !values.length ? 9 : D.measures[state.measure].higher ? low : -high, values.length ? low - high : 0, row];
  });
}

const matchingRows = () => orderedRows(chosen()).sort(byOrder).map((each) => each[3]);
const isFailed = (flow, row) => Boolean(struck.failed?.get(row)?.has(flow));
const nameOf = (row) => `${D.rows.conversations[D.rows.conversation[row]]} turn ${D.rows.turn[row] + 1}`;
// The turn of a flow with the lowest score among those with a reply; if several have it, one with a trace.
const hasTrace = (row) => Boolean(D.traces[D.rows.conversation[row]]);
const worstRow = (flow) => orderedRows([flow]).filter((each) => !isFailed(flow, each[3])).map(([failed, low, , row]) => [failed, low, hasTrace(row) ? 0 : 1, row]).reduce((worst, each) => (worst && byOrder(worst, each) < 0 ? worst : each), null)?.[3];
let worstOf = null;
function traceButton(flow, row, text, label) {
  const playedIn = (one) => at(D.series[one].has_turn, row), failedIn = (one) => at(D.series[one].values[failedAt], row);
  const own = seriesOf[flow].filter(playedIn), one = own.find((each) => Boolean(failedIn(each)) === isFailed(flow, row)) ?? own[0];
  return h("button", { type: "button", class: "to-trace", "aria-label": label, onclick: () => openDrawer(row, one) }, text);
}

const onlyFlows = () => state.flows.size > 0 && h("p", { class: "only" }, `Only ${[...state.flows].map((flow) => D.flows[flow]).join(" and ")} below; ${D.flows.length - state.flows.size} hidden. `, h("button", { type: "button", onclick: () => { state.flows.clear(); render(); } }, "all flows"));

function drawTop() {
  const [run] = D.runs;
  byId("head").replaceChildren(h("h1", {}, D.title), h("p", {}, `${D.rows.conversations.length} conversations, ${D.rows.turn.length} turns x ${D.flows.length} flows; ${[...new Set(D.runs.map((each) => each.model))].join(" and ")}, ${run.mode === "replay" ? "replay of recorded answers" : run.mode}`), onlyFlows() || "");
  const v = D.verdict, listed = (notes) => h("ul", {}, notes.map((note) => h("li", {}, note)));
  worstOf ||= D.flows.map((_, flow) => worstRow(flow));
  const titles = ["flow", "right", "mean score [95 % interval]", "failed", "cost a turn", "seconds a turn", `verdict${primary.length ? `, by ${primary.map((m) => D.measures[m].title).join(", ")}` : ""}`, "a reply with the lowest score"];
  const failures = (flow, text) => { const row = [...(struck.failed || new Map()).keys()].find((each) => isFailed(flow, each)); return row == null ? text : traceButton(flow, row, text, `${text} failed: trace of ${nameOf(row)}`); };
  const cells = (row, flow) => [row[1], row[2], failures(flow, row[3]), row[4], row[7], row.at(-1), worstOf[flow] == null ? "" : traceButton(flow, worstOf[flow], nameOf(worstOf[flow]))].map((content, i) => h("td", { class: i ? "" : "right", "data-title": titles[i + 1] }, content));
  const table = h("table", { "data-roving": true }, h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, v.numbers.map((row) => [row, D.flows.indexOf(row[0])]).map(([row, flow]) => h("tr", {}, h("th", { scope: "row" }, flowName(flow)), cells(row, flow)))));
  byId("verdict").className = v.kind;
  byId("verdict").replaceChildren(h("p", { class: "says" }, v.sentence), v.numbers.length ? h("div", { class: "scroll" }, table) : "", h("p", { class: "note" }, v.legend), listed(v.notes.slice(0, 3)), v.notes.length > 3 ? h("details", {}, h("summary", {}, `${v.notes.length - 3} more lines of evidence`), listed(v.notes.slice(3))) : "");
}

// The slices in which a flow is furthest behind the best other flow (one flow: behind its own mean), in the measure
// behind `right` or a primary one. Not a test.
function weakest() {
  const spots = [];
  for (const m of new Set([D.axis, ...(primary.length ? primary : qualities)]))
    for (const name of Object.keys(D.rows.slices))
      for (const [value, inside] of rowsBy(name)) {
        if (2 * inside.length > D.rows.turn.length || new Set(inside.map((row) => D.rows.conversation[row])).size < LEAST_CONVERSATIONS) continue;
        const graded = all(D.flows.length).map((flow) => inside.map((row) => cell(flow, row, m)).filter((v) => v != null));
        const means = graded.map((values) => (values.length < LEAST_GRADED ? null : values.reduce((a, b) => a + b) / values.length));
        means.forEach((own, flow) => {
          if (own == null || !value) return;
          const [best] = all(D.flows.length).filter((other) => other !== flow && means[other] != null).sort((a, b) => means[b] - means[a]);
          const gap = (D.flows.length > 1 ? means[best] : mean(all(D.rows.turn.length).map((row) => cell(flow, row, m)))) - own;
          if (gap >= 0.2) spots.push({ m, name, value, inside, flow, best, own, gap, size: graded[flow].length, failed: inside.filter((row) => isFailed(flow, row)).length });
        });
      }
  spots.sort((a, b) => b.gap - a.gap || b.size - a.size);
  const seen = new Set();
  return spots.filter((spot) => { const key = `${spot.m} ${spot.flow}`; return !seen.has(key) && seen.add(key); }).slice(0, WEAKEST);
}

// A question of a group: the names of groups are those of the data set.
function example(row) {
  const words = h("span", {}, "…");
  textOf(row).then(([asked]) => { words.textContent = `such as "${asked.length > 40 ? `${asked.slice(0, 40).replace(/\s+\S*$/, "")} …` : asked}";`; });
  return words;
}

// How many of the replies with a cause are right all the same.
const rightOf = (cause, count) => (count ? (cause.kind === "reply cut" ? `, ${count} of them right` : ` and ${count} right`) : "");

function drawTrouble() {
  const pick = (change) => () => { Object.assign(state, { show: "all", cause: "", slice: "" }, change); state.flows = new Set(change.flows || []); render(); byId("matrix-title").scrollIntoView(); };
  const replies = D.series.reduce((sum, one) => sum + all(D.rows.turn.length).filter((row) => at(one.has_turn, row)).length, 0);
  const buttons = D.causes.slice(0, 12).map((cause, i) => {
    const counts = all(D.flows.length).map((flow) => [flow, cause.counted.filter(([f]) => f === flow).length]).filter(([, count]) => count);
    const words = cause.at.length > 1 ? cause.name.replace("reply", "replies") : cause.name, right = rightOf(cause, cause.right.length);
    const label = `${words}${right}: ${cause.text}; ${counts.map(([flow, count]) => `${D.flows[flow]} ${count}`).join(", ")}`;
    // The text of a rule is long and always the same; an error needs its text.
    return h("button", { type: "button", class: cause.kind === "reply cut" ? "cause noted" : "cause", title: label, "aria-label": `${cause.counted.length} ${label}`, onclick: pick({ cause: String(i) }) }, h("b", {}, `${cause.counted.length} ${words}`), h("small", {}, right), ["failed", "not recorded", "cut off"].includes(cause.kind) ? ` ${cause.text}` : "", h("small", {}, counts.map(([flow, count, right]) => h("span", { class: flowClass(flow) }, h("i", { class: "dot" }), count))));
  });
  const weak = weakest().map((spot) => h("button", { type: "button", class: "weak", onclick: pick({ slice: JSON.stringify([spot.name, spot.value]), measure: spot.m, flows: spot.best == null ? [] : [spot.best, spot.flow] }) }, flowName(spot.flow), h("b", {}, ` ${D.measures[spot.m].title} ${number(spot.own, D.measures[spot.m])}`), ` where ${spot.name}: ${spot.value} `, h("small", {}, example(spot.inside[0]), ` ${spot.size} graded turns${spot.failed ? `, ${spot.failed} failed` : ""}; ${number(spot.gap, D.measures[spot.m])} behind ${spot.best == null ? "its mean" : D.flows[spot.best]}`)));
  const none = h("p", { class: "fine" }, "No turn failed, no reply was cut, no call is missing.");
  byId("trouble").replaceChildren(h("div", { class: "strip", "data-roving": true }, h("h2", {}, `What went wrong, of ${replies} replies`), D.causes.length ? buttons : none, D.causes.length > 12 ? h("p", { class: "note" }, `and ${D.causes.length - 12} more causes, in the filter below`) : ""), weak.length ? h("div", { class: "strip", "data-roving": true }, h("span", { class: "note" }, `Worst groups (not tested; of ${LEAST_GRADED} graded turns in ${LEAST_CONVERSATIONS} conversations or more):`), weak) : "");
}

function drawSlices() {
  const names = Object.keys(D.rows.slices), m = state.measure, measure = D.measures[m];
  if (!names.length) return byId("slices").replaceChildren(h("p", { class: "note" }, "No slices: the turns have no metadata to group by."));
  if (!names.includes(state.by)) state.by = ["turn kind", "turn category"].find((name) => names.includes(name)) || names.find((name) => /kind|category/.test(name)) || names[0];
  const flows = chosen();
  const line = ([value, rows]) => {
    const key = JSON.stringify([state.by, value]);
    const cells = flows.map((flow) => {
      const graded = rows.map((row) => cell(flow, row, m)).filter((each) => each != null), value = mean(graded);
      const bar = svg("svg", { class: "meter", width: 56, height: 4, "aria-hidden": "true" }, svg("rect", { width: 56 * Math.max(0, Math.min(1, value)), height: 4 }));
      return h("td", { "data-title": D.flows[flow] }, number(value, measure), graded.length < rows.length && h("small", {}, ` of ${graded.length}`), measure.quality && bar);
    });
    const act = () => { state.slice = state.slice === key ? "" : key; refilter(); };
    return h("tr", { class: state.slice === key ? "on" : "" }, h("th", { scope: "row" }, h("button", { type: "button", "aria-pressed": String(state.slice === key), onclick: act }, value || "(none)")), h("td", { "data-title": "turns" }, String(rows.length)), cells);
  };
  const table = h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, state.by), h("th", { scope: "col" }, "turns"), flows.map((flow) => h("th", { scope: "col" }, flowName(flow))))), h("tbody", { "data-roving": true }, [...rowsBy(state.by)].sort(([a], [b]) => (a < b ? -1 : 1)).map(line)));
  byId("slices").replaceChildren(h("div", { class: "axes" }, select("by", names.map((name) => [name, name]), state.by, (v) => { state.by = v; drawSlices(); }), select("of", D.measures.map((each, i) => [i, each.title]), m, (v) => { state.measure = +v; refilter(); })), h("div", { class: "scroll" }, table), h("p", { class: "note" }, "Means without intervals: a hint, not a test. \"of 3\": only 3 turns are graded. A full bar is 1. Click a slice to see its turns."));
}

function drawFilters() {
  const set = (change) => { Object.assign(state, change); refilter(); };
  const count = (name) => (name === "all" ? "" : name === "flipped" || name === "disagree" ? "" : ` ${[...(struck[name] || new Map()).keys()].filter((row) => isStruck(struck[name], row)).length}`);
  const shows = FILTERS.filter(([name]) => D.flows.length > 1 || D.series.length > 1 || !["flipped", "disagree"].includes(name)).map(([name, text]) => h("button", { type: "button", "aria-pressed": String(state.show === name), onclick: () => set(name === "all" ? { show: name, cause: "", slice: "" } : { show: name }) }, text + count(name)));
  const slices = Object.keys(D.rows.slices).flatMap((name) => [...rowsBy(name).keys()].filter(Boolean).sort().map((value) => [JSON.stringify([name, value]), `${name}: ${value}`]));
  byId("filters").replaceChildren(h("div", { class: "buttons", role: "group", "data-roving": true, "aria-label": "Which turns" }, shows), h("div", { class: "axes" },
    select("worst first by", D.measures.map((each, i) => [i, each.title]), state.measure, (v) => set({ measure: +v })),
    D.causes.length ? select("cause", [["", "any"], ...D.causes.map((cause, i) => [i, `${cause.name}: ${cause.text}`])], state.cause, (v) => set({ cause: v })) : "",
    slices.length ? select("slice", [["", "all"], ...slices], state.slice, (v) => set({ slice: v })) : ""));
}

// The replies with a cause in the rows and flows below, counted as its chip counts them.
function repliesWith(cause) {
  const rows = new Set(rowsFound), flows = new Set(chosen()), below = (each) => each.filter(([flow, row]) => rows.has(row) && flows.has(flow)).length, count = below(cause.counted);
  return `${count} ${cause.kind === "reply cut" ? "" : "bad "}repl${count === 1 ? "y" : "ies"}${rightOf(cause, below(cause.right))}`;
}

let rowsFound = [], rowsDrawn = 0, body = null, watcher = null;
function drawMatrix() {
  rowsFound = matchingRows();
  rowsDrawn = 0;
  const flows = chosen(), heads = flows.map((flow) => h("div", { role: "columnheader" }, flowName(flow)));
  body = h("div", { class: "rows", role: "rowgroup" });
  const top = h("div", { class: "heads", role: "rowgroup" }, h("div", { class: "row top", role: "row" }, h("div", { role: "columnheader" }, "asked"), heads)), across = h("div", { class: "scroll" }, body);
  // The head of the columns sticks to the page, and follows the rows sideways.
  across.addEventListener("scroll", () => { top.scrollLeft = across.scrollLeft; });
  const table = h("div", { class: flows.length < 5 ? "few" : "", role: "table", "aria-label": "Turns by flows" }, top, across);
  table.style.setProperty("--flows", flows.length);
  const end = h("p", { class: "end" });
  const counted = h("p", { class: "note", "aria-live": "polite" }, `${rowsFound.length} of ${D.rows.turn.length} turns, worst ${D.measures[state.measure].title} first. Arrow keys move through the replies, Enter opens a trace.`, state.cause !== "" ? ` Only ${D.causes[state.cause].name}, in ${repliesWith(D.causes[state.cause])}: ${D.causes[state.cause].text}.` : "", D.replies_cut_at ? ` Replies are truncated to ${D.replies_cut_at} characters to keep the page small; \`agentlab show\` prints them in full.` : "", D.runs.every((run) => run.has_expectations) ? "" : " No expectations shown: the data set is missing or has changed.");
  byId("matrix").replaceChildren(...[onlyFlows(), counted, table, end].filter(Boolean));
  watcher?.disconnect();
  watcher = new IntersectionObserver((seen) => { if (seen.some((entry) => entry.isIntersecting)) more(end); }, { rootMargin: "800px" });
  more(end);
  watcher.observe(end);
  idle = () => { if (rowsDrawn < Math.min(rowsFound.length, AHEAD)) { more(end); soon(); } };
  soon();
}

// The first rows are drawn while the browser is idle, so that its search and print include them.
let idle = () => {}, waiting = 0;
function soon() {
  cancelIdleCallback(waiting);
  waiting = requestIdleCallback(() => idle(), { timeout: 2000 });
}

function more(end) {
  const next = rowsFound.slice(rowsDrawn, rowsDrawn + BATCH);
  body.append(...next.map(drawRow));
  rowsDrawn += next.length;
  end.textContent = rowsDrawn < rowsFound.length ? `scroll for ${rowsFound.length - rowsDrawn} more turns` : "";
}

const tone = (value) => (value == null ? "" : value >= 0.75 ? "good" : value >= 0.4 ? "mid" : "bad");

function chips(one, row, m) {
  const shown = [...new Set([...(D.measures[m].quality ? [m] : []), ...primary])];
  const known = (shown.some((i) => at(D.series[one].values[i], row) != null) ? shown : qualities).filter((i) => at(D.series[one].values[i], row) != null);
  return known.slice(0, 4).map((i) => {
    const value = at(D.series[one].values[i], row);
    return h("span", { class: `chip ${tone(value)}` }, `${D.measures[i].title} ${number(value, D.measures[i])}`);
  });
}

// Return the series of the other flow if two flows are shown; the trace opens it beside.
function partner(flow, row) {
  const others = chosen().filter((other) => other !== flow);
  return others.length === 1 ? seriesOf[others[0]].find((one) => at(D.series[one].has_turn, row)) ?? "" : "";
}

function drawRow(row) {
  const name = D.rows.conversations[D.rows.conversation[row]], turn = D.rows.turn[row];
  const question = h("p", { class: "asked" }, "…"), expectedBox = h("div", { class: "expected" });
  const kinds = [...new Set(Object.entries(D.rows.slices).filter(([key]) => key.startsWith("turn ") || key.includes("category")).map(([, values]) => values[row]).filter(Boolean))];
  const boxes = [];
  const cells = chosen().map((flow, column) => {
    const repeats = seriesOf[flow].filter((one) => at(D.series[one].has_turn, row)).map((one, i) => {
      const get = (measure) => at(D.series[one].values[indexOf(measure)], row), reply = h("div", { class: "reply" }, "…");
      boxes.push([one, reply]);
      const label = `Trace of ${D.flows[flow]}, ${name} turn ${turn + 1}${D.series[one].epoch ? `, epoch ${D.series[one].epoch}` : ""}`;
      const open = h("button", { type: "button", class: "to-trace", tabindex: column || i ? -1 : 0, "aria-label": label, onclick: () => openDrawer(row, one, partner(flow, row)) }, "trace");
      const own = D.causes.filter((cause) => cause.kind !== "failed" && cause.rows.get(row)?.has(flow)), why = [...new Map(own.map((cause) => [cause.name, cause])).values()];
      const tokens = [get("input_tokens"), get("output_tokens")].map((count) => (count == null ? "?" : number(count))).join(" in, ");
      return h("div", { class: `repeat${at(D.series[one].values[failedAt], row) ? " failed" : ""}` }, seriesOf[flow].length > 1 ? h("small", {}, `epoch ${D.series[one].epoch}`) : "", reply, h("div", { class: "chips" }, chips(one, row, state.measure), why.map((cause) => h("span", { class: `chip why ${cause.kind === "reply cut" ? "noted" : ""}` }, cause.name))), h("div", { class: "spent" }, `${tokens} out · ${took(get("latency_s"))}`, open));
    });
    return h("div", { class: `cell ${flowClass(flow)}`, role: "cell" }, h("div", { class: "narrow" }, flowName(flow)), repeats.length ? repeats : h("small", {}, "not played"));
  });
  textOf(row).then(([asked, expected, replies]) => {
    question.textContent = asked;
    expectedBox.replaceChildren(...expected.map((line) => h("p", {}, line)));
    for (const [one, box] of boxes) box.textContent = (at(D.series[one].values[failedAt], row) ? "FAILED: " : "") + (replies[one] || (replies[one] === "" ? "(an empty reply)" : ""));
  });
  return h("div", { class: "row", role: "row", id: `row-${row}` }, h("div", { class: "q", role: "rowheader" }, h("small", {}, `${name} · turn ${turn + 1}`, kinds.map((kind) => h("span", { class: "tag" }, kind))), question, expectedBox), cells);
}

// Tab stops once at a group of buttons, and arrow keys move through it; in the matrix up and down go from row to row.
function rove() {
  for (const group of document.querySelectorAll("[data-roving]")) [...group.querySelectorAll("button, [role=button]")].forEach((each, i) => { each.tabIndex = i ? -1 : 0; });
}

function moveInGroup(event) {
  const group = event.target.closest?.("[data-roving], .rows"), row = event.target.closest?.(".row")?.querySelectorAll(".to-trace").length || 1;
  const step = { ArrowRight: 1, ArrowDown: row, ArrowLeft: -1, ArrowUp: -row }[event.key];
  if (!step || !group || event.target.matches("select")) return;
  const each = [...group.querySelectorAll("button, [role=button]")], next = each[each.indexOf(event.target) + step];
  if (next) { event.preventDefault(); next.focus(); }
}

function drawOrigin() {
  const facts = (run) => [["folder", run.path], ["model", `${run.model}, ${run.mode}, ${run.status}`], ["data", run.data.join(", ")], ...Object.entries(run.origin).map(([name, facts]) => [name, typeof facts === "string" ? facts : Object.entries(facts).map(([key, value]) => (name === "versions" ? `${key} ${value}` : value)).join(name === "versions" ? ", " : " ")])].filter(([, text]) => text);
  byId("origin").replaceChildren(...D.runs.map((run) => h("div", {}, h("h3", {}, run.id), h("dl", {}, facts(run).map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])), h("details", {}, h("summary", {}, "the spec: save it as spec.yaml, and ", h("code", {}, "agentlab run spec.yaml"), " repeats the run"), h("pre", {}, run.spec)))), h("p", {}, "This page: ", h("code", {}, D.command), ` · agentlab ${D.agentlab}`));
}
