import { choose, chosen, fillSelect } from "./choices.js";
import { count, decimals, known, percent, span } from "./format.js";
import { History, OF_WINDOW, WINDOWS } from "./history.js";
import { drawCurve, fillReliability } from "./reliability.js";
import { fillSlices } from "./slices.js";
import { follow } from "./stream.js";
import { GROUPS, Tile } from "./tiles.js";

const SPOKEN = { "15m": "Last 15 minutes", "30m": "Last 30 minutes", "1h": "Last hour", "24h": "Last 24 hours", all: "Whole stream" };
const MARKS = { good: "✓", watch: "!", bad: "✕", none: "–" };
const LOST_AFTER_MS = 3000;
const LIST_EVERY_MS = 3000;

const $ = (id) => document.getElementById(id);
const tiles = Object.entries(GROUPS).flatMap(([place, kinds]) => kinds.map((kind) => new Tile($(place), kind)));

let choice = chosen();
let stop = () => {};
let names = [];
let aliases = {};
let seen = nothing();

function nothing() {
  return { live: null, evaluation: null, slices: {}, history: null, heard: 0, ended: null };
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// -- where the figures come from

function watch(model) {
  stop();
  seen.history?.keep();
  seen = nothing();
  choice.model = model;
  if (model) {
    seen.history = new History(model);
    stop = follow(model, { onEvent: take, onState: ended });
  } else {
    stop = () => {};
  }
  render();
}

function take(kind, content) {
  seen.heard = Date.now();
  seen.ended = null;
  if (kind === "figures") seen.evaluation = content;
  if (kind === "slices") seen.slices = content;
  if (kind === "trouble") seen.ended = { kind: "refused", detail: content.detail };
  if (kind === "live") {
    if (seen.live && seen.live.incarnation !== content.incarnation) Object.assign(seen, { evaluation: null, slices: {} });
    seen.live = content;
    if (content.models) names = content.models;
    aliases = content.aliases;
    seen.history.add(content, seen.evaluation);
  }
  render();
}

function ended(state) {
  seen.ended = state;
  if (state.kind !== "lost") list();
  render();
}

const first = () => (names.includes("default") ? "default" : names[0]);

// Lists the models, repeatedly while none is followed: the stream of a followed model includes the list.
async function list() {
  let found = { kind: "lost" };
  try {
    const reply = await fetch("models", { cache: "no-store" });
    const content = await reply.json();
    found = reply.ok ? { kind: "empty" } : { kind: "refused", detail: content.detail };
    if (reply.ok) names = content.models;
  } catch {
    // The service does not answer.
  }
  if (!choice.model && names.length) {
    watch(first());
  } else if (!choice.model) {
    seen.ended = found;
    setTimeout(list, LIST_EVERY_MS);
  }
  render();
}

// -- what is shown

const lost = () => seen.heard > 0 && Date.now() - seen.heard > LOST_AFTER_MS;

function source() {
  const there = Object.keys(seen.evaluation?.sources ?? {});
  if (there.includes(choice.source)) return choice.source;
  return there.includes("served") ? "served" : "progressive";
}

function render() {
  renderConnection();
  renderVerdict();
  const now = {
    live: seen.live,
    evaluation: seen.evaluation,
    figures: seen.evaluation?.sources?.[source()]?.[choice.window],
    window: choice.window,
    source: source(),
    ofWindow: OF_WINDOW,
  };
  for (const tile of tiles) tile.show(now, seen.history);
  const old = lost() || seen.ended !== null || seen.live?.predict === "stale";
  for (const id of ["quality", "traffic", "reliability", "state", "slices"]) $(id).classList.toggle("stale", old);
  renderChoices(now);
  renderReliability(now.figures?.reliability);
  renderState(seen.live, seen.evaluation?.measures);
  renderSlices();
}

function renderConnection() {
  const ago = seen.heard ? `, last figures ${span((Date.now() - seen.heard) / 1000)} ago` : "";
  let [state, text] = ["live", "Live"];
  if (seen.ended?.kind === "gone") [state, text] = ["lost", "No such model"];
  else if (seen.ended?.kind === "empty") [state, text] = ["stale", "No models"];
  else if (seen.ended?.kind === "refused") [state, text] = ["lost", `Refused${ago}`];
  else if (lost() || (seen.ended && !seen.heard)) [state, text] = ["lost", `Connection lost${ago}`];
  else if (!seen.heard) [state, text] = ["connecting", "Connecting"];
  else if (seen.live?.predict === "stale") [state, text] = ["stale", `Stale for ${span(seen.live.mirror_age_seconds)}`];
  $("connection").dataset.state = state;
  write($("connection-text"), text);
}

function renderVerdict() {
  const [level, headline, explanation, checks] = verdictNow();
  $("verdict").dataset.level = level;
  write($("headline"), headline);
  write($("explanation"), explanation);
  const key = JSON.stringify(checks);
  if ($("checks").dataset.key !== key) {
    $("checks").dataset.key = key;
    $("checks").replaceChildren(...checks.map(checkLine));
  }
  document.title = `${headline} · ${choice.model || "ftrl"}`;
}

function verdictNow() {
  const { ended: end, live } = seen;
  if (end?.kind === "gone") return ["bad", `There is no model ${choice.model}`, "It was deleted or never created. Choose another; if it is created again, it is shown.", []];
  if (end?.kind === "empty") return ["none", "No models yet", `Create one: curl -X PUT ${location.origin}/models/default --json '{}'`, []];
  if (end?.kind === "refused") return ["bad", "Not known: the service does not show this model", end.detail ?? "", []];
  if (lost() || (end && !live)) {
    const how = seen.heard ? "The figures below are the last ones received. " : "";
    return ["bad", "Not known: the connection to the service is lost", `${how}Reconnecting.`, []];
  }
  if (!live) return ["none", "Connecting", "", []];
  return [live.verdict.level, live.verdict.headline, "", live.verdict.checks];
}

function checkLine({ name, level, text }) {
  const line = document.createElement("li");
  line.dataset.level = level;
  for (const [tag, kind, content] of [["span", "mark", MARKS[level]], ["b", "name", { up: "Up", fast: "Fast", learning: "Learning", right: "Right" }[name]], ["span", "text", text]]) {
    const part = document.createElement(tag);
    part.className = kind;
    part.textContent = content;
    line.append(part);
  }
  line.querySelector(".mark").setAttribute("aria-label", { good: "good:", watch: "attention:", bad: "bad:", none: "not known:" }[level]);
  line.querySelector(".mark").setAttribute("role", "img");
  return line;
}

function renderChoices(now) {
  const said = Object.fromEntries(Object.entries(aliases).map(([alias, model]) => [alias, `${alias} (now ${model})`]));
  fillSelect($("model"), [...names, ...Object.keys(aliases)], choice.model, said);
  document.querySelector(`#windows input[value="${choice.window}"]`).checked = true;
  $("sources").hidden = Object.keys(seen.evaluation?.sources ?? {}).length < 2;
  document.querySelector(`#sources input[value="${now.source}"]`).checked = true;
  const judged = now.source === "served" ? "the probabilities that were served" : "each prediction just before its click was learned";
  const upTo = seen.evaluation?.as_of ? `, up to ${moment(seen.evaluation.as_of)}` : "";
  const ranges = now.figures?.auc_interval ? "; the ranges are 95 % intervals" : "";
  write($("quality-note"), seen.evaluation ? `${SPOKEN[choice.window]}${upTo}: ${judged}${ranges}` : SPOKEN[choice.window]);
}

function moment(text) {
  const time = new Date(text);
  const today = time.toDateString() === new Date().toDateString();
  return today ? time.toLocaleTimeString("en-GB") : time.toLocaleString("en-GB");
}

let drawn = "";
function renderReliability(rows) {
  const key = JSON.stringify([rows, $("curve").clientWidth, $("curve").clientHeight]);
  if (drawn === key) return;
  drawn = key;
  drawCurve($("curve"), rows);
  fillReliability($("reliability-table").tBodies[0], rows);
  write($("reliability-note"), rows?.length ? `${SPOKEN[choice.window]}; the bars are 95 % intervals` : "");
}

function renderState(live, measures) {
  write($("state-note"), live ? `revision ${live.revision}` : "");
  const facts = [
    ["Examples learned", live && count(live.t)],
    ["Features seen", live && count(live.features_seen)],
    ["Weights other than 0", measures && count(measures.nonzero)],
    ["Slots in use", measures && percent(measures.slot_load)],
    ["Features that share a slot", measures && percent(measures.expected_collision_rate)],
    ["Norm of the weights", measures && decimals(measures.weight_norm, 2)],
    ["Largest weight", measures && decimals(measures.largest_weight, 3)],
    ["Norm of the gradient", measures && decimals(measures.gradient_norm, 2)],
    ["Slots that are not finite", measures && count(measures.nonfinite)],
  ].filter(([, value]) => value && value !== "–");
  const key = JSON.stringify(facts);
  if ($("facts").dataset.key === key) return;
  $("facts").dataset.key = key;
  $("facts").replaceChildren(
    ...facts.flatMap(([name, value]) => {
      const [term, fact] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      fact.textContent = value;
      return [term, fact];
    }),
  );
}

let tabled = "";
function renderSlices() {
  const slices = seen.slices;
  const features = Object.keys(slices);
  $("slices").hidden = features.length === 0;
  if (!features.length) return;
  const feature = features.includes($("feature").value) ? $("feature").value : features[0];
  fillSelect($("feature"), features, feature);
  const key = JSON.stringify([feature, choice.window, slices[feature]]);
  if (tabled === key) return;
  tabled = key;
  fillSlices($("slices-table").tBodies[0], slices[feature], choice.window);
}

// -- what a reader does

$("model").addEventListener("change", (event) => {
  choose({ model: event.target.value === first() ? "" : event.target.value });
  watch(event.target.value);
});
for (const [group, name] of [["windows", "window"], ["sources", "source"]]) {
  $(group).addEventListener("change", (event) => {
    choice[name] = event.target.value;
    choose({ [name]: event.target.value });
    render();
  });
}
$("feature").addEventListener("change", renderSlices);
addEventListener("popstate", () => {
  const { model, ...others } = chosen();
  Object.assign(choice, others);
  if ((model || first()) !== choice.model) watch(model || first());
  else render();
});
addEventListener("pagehide", () => seen.history?.keep());
addEventListener("resize", render);
setInterval(render, 1000);

if (!WINDOWS.includes(choice.window)) choice.window = "1h";
if (choice.model) watch(choice.model);
list();
