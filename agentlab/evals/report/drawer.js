// The trace drawer: the steps of one flow in a turn, to scale, optionally beside another flow. It shows each prompt, the
// prefix sent before, and the first step in which two flows differ.

const drawer = byId("drawer");
const opened = { row: 0, series: 0, beside: "", errors: [] };
const pages = new Map();
let opener = null;

function pageOf(number) {
  const page = D.text_starts.findLastIndex((start) => start <= number);
  if (!pages.has(page)) pages.set(page, inflated(D.texts[page]));
  return pages.get(page).then((texts) => texts[number - D.text_starts[page]]);
}

// Replaces numbers by their texts; each text is stored once for all traces.
async function unpacked(value) {
  if (typeof value === "string") return value.startsWith("#") ? pageOf(+value.slice(1)) : value;
  if (Array.isArray(value)) return Promise.all(value.map(unpacked));
  if (!value || typeof value !== "object") return value;
  const parts = await Promise.all(Object.values(value).map(unpacked));
  return Object.fromEntries(Object.keys(value).map((key, i) => [key, parts[i]]));
}

const conversations = new Map();
function traceOf(conversation) {
  if (!D.traces[conversation]) return Promise.resolve(null);
  if (!conversations.has(conversation)) conversations.set(conversation, inflated(D.traces[conversation]).then(unpacked));
  return conversations.get(conversation);
}

function promptOf(event) {
  const request = event.request || {};
  const textOfMessage = (message) => {
    const calls = (message.tool_calls || []).map((call) => `\ncalls ${call.name} ${call.malformed || JSON.stringify(call.arguments || {})}`);
    return `[${message.role}${message.name ? ` ${message.name}` : ""}]\n${message.text || ""}${calls.join("")}`;
  };
  return [...(request.tools?.length ? [`[tools]\n${request.tools.join("\n")}`] : []), ...(request.messages || []).map(textOfMessage)].join("\n\n");
}

function replyOf(event) {
  const message = event.completion?.message;
  if (!message) return event.error || "";
  return [message.text || "", ...(message.tool_calls || []).map((call) => `calls ${call.name} ${call.malformed || JSON.stringify(call.arguments || {}, null, 1)}`)].filter(Boolean).join("\n");
}

// Input and output of a step as texts; two steps are equal if both are.
function sides(event) {
  switch (event.kind) {
    case "model_call": return [promptOf(event), replyOf(event)];
    case "tool": return [JSON.stringify(event.call?.malformed || event.call?.arguments || {}, null, 1), event.output || ""];
    case "search": return [event.query || "", (event.passages || []).map((passage) => passage.id).join(" ")];
    case "memory": return [event.text || "", (event.facts || []).map((fact) => fact.text).join("\n")];
    case "fetch": return [event.source || "", JSON.stringify(event.facts)];
    case "decision": return [event.name, `${event.choice ?? "no"} ${event.why || ""}`];
    default: return [event.title, event.text || ""];
  }
}

// Lines of two texts as [" ", "-" or "+", line]: equal beginnings and ends, and all that is between them.
function difference(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let start = 0, end = 0;
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start += 1;
  while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const signed = (sign, lines) => lines.map((line) => [sign, line]);
  return [...signed(" ", a.slice(0, start)), ...signed("-", a.slice(start, a.length - end)), ...signed("+", b.slice(start, b.length - end)), ...signed(" ", a.slice(a.length - end))];
}

// Draws changed lines, each with one line of context.
function drawDifference(lines) {
  const near = (i) => [i - 1, i, i + 1].some((k) => lines[k] && lines[k][0] !== " ");
  const shown = [];
  lines.forEach(([sign, line], i) => {
    if (near(i)) shown.push(h("span", { class: sign === "+" ? "added" : sign === "-" ? "removed" : "" }, `${sign} ${line}\n`));
    else if (i && near(i - 1)) shown.push(h("span", { class: "gap" }, "⋯\n"));
  });
  return h("pre", { class: "diff" }, shown.length ? shown : "no difference");
}

const folded = (title, open, ...parts) => h("details", { open }, h("summary", {}, title), parts);

function drawCall(event, before) {
  const prompt = promptOf(event), usage = event.completion?.usage || {}, earlier = before ? promptOf(before) : "";
  let shared = 0;
  while (shared < Math.min(prompt.length, earlier.length) && prompt[shared] === earlier[shared]) shared += 1;
  const share = prompt.length ? shared / prompt.length : 0;
  const facts = [event.model, `${usage.input_tokens ?? "?"} in, ${usage.output_tokens ?? "?"} out`, usage.cached_tokens != null && `${usage.cached_tokens} cached`, before && `first ${Math.round(share * 100)} % as in the previous call`, event.completion?.finish_reason === "length" && "stopped at max_tokens", event.waited >= 0.01 && `waited ${took(event.waited)}`].filter(Boolean);
  return [
    h("p", { class: "note" }, facts.join(" · ")),
    folded(`prompt, ${prompt.length.toLocaleString("en")} characters`, false, h("pre", {}, h("span", { class: "prefix", title: "sent before; a prefix cache can serve it" }, prompt.slice(0, shared)), prompt.slice(shared))),
    before ? folded("difference to the previous call's prompt", false, drawDifference(difference(earlier, prompt))) : "",
    h("p", { class: "note" }, "reply"), h("pre", { class: "out" }, replyOf(event) || "(nothing)"),
  ];
}

function drawDetail(event, before, relevant) {
  const [input, output] = sides(event);
  switch (event.kind) {
    case "model_call": return drawCall(event, before);
    case "tool": return [h("p", { class: "note" }, "arguments"), h("pre", {}, input), h("p", { class: "note" }, "output"), h("pre", { class: "out" }, output)];
    case "search": {
      const passages = (event.passages || []).map((passage) => {
        const good = relevant && relevant.includes(passage.doc_id);
        return h("details", { class: good ? "relevant" : "" }, h("summary", {}, good ? "★ relevant: " : "", `${passage.title} (${passage.id})`, passage.score == null ? "" : ` ${number(passage.score)}`), h("pre", {}, passage.text));
      });
      const missing = (relevant || []).filter((id) => !(event.passages || []).some((passage) => passage.doc_id === id));
      return [h("p", {}, `query: ${input}`), passages.length ? passages : h("p", { class: "note" }, "no results"), missing.length ? h("p", { class: "missing" }, `not found: ${missing.join(", ")}`) : ""];
    }
    case "memory": return [h("p", {}, `${event.op === "recall" ? "recalled for" : "write"}: ${input}`), event.op === "recall" ? "" : h("p", { class: "note" }, event.written ? `stored${event.replaces ? `, replaces ${event.replaces}` : ""}` : "not stored: too similar to a stored fact"), h("ul", {}, (event.facts || []).map((fact) => h("li", {}, fact.text, fact.score == null ? "" : ` (${number(fact.score)})`)))];
    default: return output ? [h("pre", {}, output)] : [];
  }
}

// Groups of steps: a costed step with the decisions and notices before it. Costed steps are aligned across flows.
function grouped(events) {
  const groups = [[]];
  for (const event of events) {
    groups[groups.length - 1].push(event);
    if (event.phase != null) groups.push([]);
  }
  return groups.filter((group) => group.length);
}

// A step with its bar, on the time scale of the turn.
function drawStep(event, scale, previous, relevant, apart) {
  const bar = h("i", { class: `p${Math.max(0, D.phase_order.indexOf(event.phase)) % 9}${event.background ? " background" : ""}` });
  bar.style.marginLeft = `${(100 * ((event.start || 0) - scale.begin)) / scale.seconds}%`;
  bar.style.width = `max(2px, ${(100 * (event.seconds || 0)) / scale.seconds}%)`;
  const costed = event.phase != null;
  const spent = costed ? `${took(event.seconds || 0)}${event.background ? ", in the background" : ""}` : "";
  const detail = [event.error && !opened.errors.includes(event.error) ? h("p", { class: "missing" }, `FAILED: ${event.error}`) : "", drawDetail(event, previous(event), relevant)];
  const title = [h("b", {}, costed ? event.phase.replace("_", " ") : event.kind), ` ${event.title}`, h("small", {}, spent)];
  const heavy = event.kind === "model_call" || event.kind === "tool" || event.error;
  return h("details", { class: `step ${event.kind}${event.error ? " failed" : ""}${apart ? " apart" : ""}`, open: Boolean(event.error || (heavy && apart)) }, h("summary", {}, h("span", {}, title), costed ? h("span", { class: "track" }, bar) : ""), detail);
}

function drawHead(one, reply, { events, scores }) {
  const flow = D.series[one].flow, failed = at(D.series[one].values[failedAt], opened.row), get = (name) => at(D.series[one].values[indexOf(name)], opened.row);
  const why = D.causes.filter((cause) => cause.rows.get(opened.row)?.has(flow));
  const isPrimary = ([metric]) => D.measures[indexOf(metric)]?.primary, few = scores.some(isPrimary) ? scores.filter(isPrimary) : scores.slice(0, 2);
  const listed = (rows) => h("ul", { class: "scores" }, rows.map(([metric, value, reason]) => h("li", {}, h("span", { class: `chip ${tone(value)}` }, `${metric} ${value == null ? "?" : value.toFixed(2)}`), failed ? "" : ` ${reason}`)));
  const rest = scores.filter((score) => !few.includes(score));
  return h("div", { class: flowClass(flow) }, h("h3", {}, flowName(flow), D.series[one].epoch ? ` epoch ${D.series[one].epoch}` : ""),
    why.map((cause) => h("p", { class: `why ${cause.kind === "reply cut" ? "noted" : ""}` }, h("b", {}, `${cause.kind === "reply cut" ? "note" : "cause"}: ${cause.name}`), cause.kind !== "failed" ? `: ${cause.text}` : events.some((event) => event.error) ? "" : ": the flow itself raised this error, after the steps below")),
    h("p", { class: `reply${failed ? " failed" : ""}` }, (failed ? "FAILED: " : "") + (reply || "(an empty reply)")),
    listed(few), rest.length ? folded(`${rest.length} more scores`, false, listed(rest)) : "",
    h("p", { class: "spent" }, `${number(get("llm_calls"))} call${get("llm_calls") === 1 ? "" : "s"} · ${number(get("input_tokens"))} in, ${number(get("output_tokens"))} out · ${took(get("latency_s"))}`));
}

function drawDivergence(a, b) {
  const sameKind = a && b && a.kind === b.kind, differs = sameKind && sides(a)[0] !== sides(b)[0];
  const text = !sameKind ? "the steps differ." : differs ? "the requests differ (− left, + right)." : "equal requests have different results.";
  return h("div", { class: "divergence" }, h("b", {}, "First difference: "), text, differs ? drawDifference(difference(sides(a)[0], sides(b)[0])) : "");
}

// Draws the turns before a question, which may refer to them: folded if they are many. The last of `rows` is its own.
function drawEarlier(rows, texts, drawn) {
  const answered = rows.slice(0, -1).map((row, i) => [D.rows.turn[row], texts[i][0], ...drawn.map((one) => `${drawn.length > 1 ? `${D.flows[D.series[one].flow]}: ` : ""}${texts[i][2][one] || "(no reply)"}`)]);
  const lines = [...texts.at(-1)[3], ...answered].sort(([a], [b]) => a - b).map(([turn, asked, ...replies]) => h("div", {}, h("p", {}, h("small", {}, `turn ${turn + 1}: `), asked), replies.filter(Boolean).map((reply) => h("p", { class: "note" }, reply))));
  return lines.length ? h("div", { class: "earlier" }, folded(`${lines.length} earlier turn${lines.length > 1 ? "s" : ""} of this conversation`, lines.length <= 3, lines)) : "";
}

async function openDrawer(row, one, beside = "") {
  if (!drawer.open) opener = document.activeElement;
  Object.assign(opened, { row, series: one, beside, errors: [] });
  const number = D.rows.conversation[row], turn = D.rows.turn[row], name = D.rows.conversations[number];
  const rows = all(row + 1).filter((each) => D.rows.conversation[each] === number);
  const [texts, trace] = await Promise.all([Promise.all(rows.map(textOf)), traceOf(number)]), [asked, expected, replies] = texts.at(-1);
  opened.errors = replies.filter(Boolean);
  const drawn = [one, ...(beside === "" ? [] : [+beside])];
  const options = all(D.series.length).filter((each) => at(D.series[each].has_turn, row)).map((each) => [each, D.flows[D.series[each].flow] + (D.series[each].epoch ? `, epoch ${D.series[each].epoch}` : "")]);
  const position = rowsFound.indexOf(row), go = (step) => () => rowsFound[position + step] != null && openDrawer(rowsFound[position + step], one, beside);
  const bar = h("div", { class: "axes" }, select("flow", options, one, (v) => openDrawer(row, +v, beside)), select("compare with", [["", "none"], ...options.filter(([each]) => each !== one)], beside, (v) => openDrawer(row, one, v)),
    h("button", { type: "button", disabled: position < 1, onclick: go(-1) }, "← in the list"), h("button", { type: "button", disabled: position < 0 || position >= rowsFound.length - 1, onclick: go(1) }, "next in the list →"), h("button", { type: "button", class: "close", onclick: () => drawer.close() }, "close"));
  const turns = drawn.map((each) => trace?.series[each]?.[turn] || { events: [], scores: [] });
  const steps = turns.map((each) => each.events);
  const body = h("div", { class: `beside n${drawn.length}` }, drawn.map((each, i) => drawHead(each, replies[each], turns[i])));
  if (!trace) body.append(h("p", { class: "note" }, "The traces of this conversation are omitted to keep the page small; see: "), h("code", {}, `agentlab show ${D.folders.split(" ")[0]} ${name} --trace --all`));
  if (drawn.some((each) => at(D.series[each].values[failedAt], row))) body.append(h("p", { class: "note" }, "Steps before the failure:"));
  const begins = steps.map((events) => Math.min(...events.map((event) => event.start || 0)));
  const seconds = Math.max(1e-6, ...steps.flatMap((events, i) => events.map((event) => (event.start || 0) + (event.seconds || 0) - begins[i])));
  const previous = (each) => {
    const calls = Object.values(trace?.series[each] || {}).flatMap((one) => one.events).filter((event) => event.kind === "model_call").sort((a, b) => a.id - b.id);
    return (event) => calls[calls.indexOf(event) - 1];
  };
  const same = (a, b) => a && b && a.kind === b.kind && a.title === b.title && sides(a).every((side, i) => side === sides(b)[i]);
  const groups = steps.map(grouped), work = (k, i) => groups[k][i]?.at(-1);
  const longest = Math.max(...groups.map((each) => each.length));
  const parts = drawn.length > 1 ? all(longest).find((i) => !same(work(0, i), work(1, i))) : -1;
  for (const i of all(longest)) {
    if (i === parts) body.append(drawDivergence(work(0, i), work(1, i)));
    body.append(...drawn.map((each, k) => h("div", { class: "group" }, (groups[k][i] || []).map((event) => drawStep(event, { begin: begins[k], seconds }, previous(each), trace.relevant[turn], i === parts)))));
  }
  if (drawn.length > 1 && parts == null && trace) body.append(h("p", { class: "divergence" }, "All steps are equal."));
  drawer.replaceChildren(h("div", { class: "sticky" }, h("h2", {}, `${name} · turn ${turn + 1}`), bar), drawEarlier(rows, texts, drawn), h("p", { class: "asked" }, asked), h("div", { class: "expected" }, expected.map((line) => h("p", {}, line))), body);
  if (!drawer.open) { drawer.showModal(); drawer.querySelector("select").focus(); }
}
