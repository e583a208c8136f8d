// The view of one model: live figures, its history, its configuration, and a form that predicts.
import { ofModel } from "./api.js";
import { Challengers } from "./challengers.js";
import { fillSelect } from "./choices.js";
import { Configuration } from "./configuration.js";
import { Features } from "./features.js";
import { element, markOf, write } from "./elements.js";
import { count, decimals, percent, span } from "./format.js";
import { History, OF_WINDOW } from "./history.js";
import { Past } from "./past.js";
import { drawCurve, fillReliability } from "./reliability.js";
import { fillSlices } from "./slices.js";
import { follow } from "./stream.js";
import { GROUPS, Tile } from "./tiles.js";
import { Tryout } from "./tryout.js";

const SPOKEN = { "15m": "Last 15 minutes", "30m": "Last 30 minutes", "1h": "Last hour", "24h": "Last 24 hours", all: "Whole stream" };
const LOST_AFTER_MS = 3000;

const $ = (id) => document.getElementById(id);
const tiles = Object.entries(GROUPS).flatMap(([place, kinds]) => kinds.map((kind) => new Tile($(place), kind)));

const past = new Past($("past"));
const configuration = new Configuration($("configuration"), $("snapshots"));
const tryout = new Tryout($("tryout"));
const challengers = new Challengers($("challengers"));
const features = new Features($("named-features"));

let choice = {};
let stop = () => {};
let aliases = {};
let seen = nothing();
let onNames = () => {};

function nothing() {
  return { live: null, evaluation: null, slices: {}, history: null, heard: 0, ended: null };
}

// Follows a model, or nothing without one. `report` is called with the names of all models as they come.
export function watch(model, chosen, report) {
  stop();
  seen.history?.keep();
  seen = nothing();
  choice = { ...chosen, model };
  onNames = report;
  stop = () => {};
  past.follow(model);
  tryout.follow(model);
  features.follow(model);
  challengers.follow(model);
  if (model) {
    seen.history = new History(model);
    stop = follow(model, { onEvent: take, onState: ended });
  }
  render();
}

export function choose(changes) {
  Object.assign(choice, changes);
  render();
}

export const keep = () => seen.history?.keep();

function take(kind, content) {
  seen.heard = Date.now();
  seen.ended = null;
  if (kind === "figures") seen.evaluation = content;
  if (kind === "slices") seen.slices = content;
  if (kind === "trouble") seen.ended = { kind: "refused", detail: content.detail };
  if (kind === "live") {
    if (seen.live && seen.live.incarnation !== content.incarnation) Object.assign(seen, { evaluation: null, slices: {} });
    seen.live = content;
    aliases = content.aliases;
    if (content.models) onNames(content.models, aliases);
    const own = Object.keys(aliases).filter((alias) => aliases[alias] === content.model);
    configuration.follow(choice.model, content.incarnation, own);
    seen.history.add(content, seen.evaluation);
  }
  render();
}

function ended(state) {
  seen.ended = state;
  render();
}

const lost = () => seen.heard > 0 && Date.now() - seen.heard > LOST_AFTER_MS;

function source() {
  const there = Object.keys(seen.evaluation?.sources ?? {});
  if (there.includes(choice.source)) return choice.source;
  return there.includes("served") ? "served" : "progressive";
}

export function render() {
  if (!choice.model) return;
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
  for (const id of ["quality", "traffic", "reliability", "state", "slices", "past"]) $(id).classList.toggle("stale", old);
  past.show(choice.window, configuration.experts());
  configuration.show(seen.live?.t, seen.evaluation);
  renderChoices(now);
  renderReliability(now.figures?.reliability);
  renderState(seen.live, seen.evaluation?.measures);
  renderSlices();
}

function renderConnection() {
  const ago = seen.heard ? `, last figures ${span((Date.now() - seen.heard) / 1000)} ago` : "";
  let [state, text] = ["live", "Live"];
  if (seen.ended?.kind === "gone") [state, text] = ["lost", "No such model"];
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
  document.title = `${headline} · ${choice.model}`;
  renderStart();
}

function verdictNow() {
  const { ended: end, live } = seen;
  if (end?.kind === "gone") return ["bad", `There is no model ${choice.model}`, "It was deleted or never created. Choose another; if it is created again, it is shown.", []];
  if (end?.kind === "refused") return ["bad", "Not known: the service does not show this model", end.detail ?? "", []];
  if (lost() || (end && !live)) {
    const how = seen.heard ? "The figures below are the last ones received. " : "";
    return ["bad", "Not known: the connection to the service is lost", `${how}Reconnecting.`, []];
  }
  if (!live) return ["none", "Connecting", "", []];
  return [live.verdict.level, live.verdict.headline, "", live.verdict.checks];
}

// The two commands that bring a new model to life.
function renderStart() {
  $("start").hidden = !(seen.live && seen.live.t === 0 && !seen.live.lag?.examples);
  const path = `${new URL(ofModel(choice.model), location.href).href}`;
  const send = (call, body) => `curl -s ${path}/${call} -H 'Content-Type: application/json' -d '${JSON.stringify(body)}'`;
  const features = { ad: "a17", site: "news.example", hour: 14 };
  write($("start-why"), "It predicts from the first call on, and learns from the first example:");
  write($("start-commands"), `${send("predict", { features })}\n${send("update", { features, label: 1 })}`);
}

const CHECKS = { up: "Up", fast: "Fast", learning: "Learning", right: "Right" };

function checkLine({ name, level, text }) {
  const line = element("li", [markOf(level), element("b", CHECKS[name], { className: "name" }), element("span", text, { className: "text" })]);
  line.dataset.level = level;
  return line;
}

function renderChoices(now) {
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
    ["Features dropped", live && live.features_dropped > 0 && count(live.features_dropped)],
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
  $("facts").replaceChildren(...facts.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
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

$("feature").addEventListener("change", renderSlices);
