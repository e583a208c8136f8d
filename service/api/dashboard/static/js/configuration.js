// What a model is made with, its aliases, and its snapshots, which can be restored.
import { call, ofModel, post } from "./api.js";
import { element, row, write } from "./elements.js";
import { UNKNOWN, count, decimals, known } from "./format.js";

const MAX_SNAPSHOTS = 20;

export class Configuration {
  constructor(place, snapshots) {
    this.place = place;
    this.snapshots = snapshots;
    this.model = "";
    this.key = "";
    this.snapshots.addEventListener("toggle", () => this.snapshots.open && this.list());
    snapshots.querySelector("#take").addEventListener("click", () => this.act("Taking a snapshot", post(ofModel(this.model, "/snapshots"), "{}")));
  }

  // Reads it again where the model, or how it was changed, is another.
  async follow(model, incarnation, aliases) {
    const key = JSON.stringify([model, incarnation]);
    write(this.place.querySelector("#aliases"), aliases.length ? `Aliases: ${aliases.join(", ")}` : "");
    if (key === this.key) return;
    Object.assign(this, { model, key });
    this.say("");
    const reply = await call(ofModel(model));
    if (key !== this.key) return;
    this.description = reply.ok ? reply.content : null;
    const facts = reply.ok ? factsOf(reply.content) : [["Configuration", reply.detail]];
    this.place.querySelector("dl").replaceChildren(...facts.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
    const { hyper, hashing, evaluation, feedback, snapshots } = reply.content;
    write(this.place.querySelector("pre"), reply.ok ? JSON.stringify({ hyper, hashing, evaluation, feedback, snapshots }, null, 2) : "");
    if (this.snapshots.open) this.list();
  }

  // The present state, with which snapshots are compared.
  show(t, evaluation) {
    this.now = { t, evaluation };
  }

  // How the experts of a mixture differ: their rates and half-lives.
  experts() {
    return (this.description?.hyper?.rate?.experts ?? []).map(expertText);
  }

  async list() {
    const model = this.model;
    const reply = await call(ofModel(model, "/snapshots"));
    if (model !== this.model) return;
    const found = reply.ok ? reply.content.snapshots.toReversed() : [];
    const more = found.length > MAX_SNAPSHOTS ? ` The newest ${MAX_SNAPSHOTS} of ${count(found.length)}.` : "";
    this.say(reply.ok ? (found.length ? more.trim() : "There is none yet.") : reply.detail);
    this.snapshots.querySelector("tbody").replaceChildren(...this.present(), ...found.slice(0, MAX_SNAPSHOTS).map((one) => this.line(one)));
  }

  present() {
    return this.now ? [row("Now", [["Why", ""], ...figuresOf(this.now), ["Restore", ""]])] : [];
  }

  line(snapshot) {
    const restore = element("button", "Restore", { type: "button", ariaLabel: `Restore the snapshot of ${moment(snapshot.time)}` });
    restore.addEventListener("click", () => this.restore(snapshot));
    return row(moment(snapshot.time), [
      ["Why", [snapshot.reason, ...snapshot.tags].join(", ")],
      ...figuresOf(snapshot),
      ["Restore", restore],
    ]);
  }

  restore(snapshot) {
    const lost = "What was learned since is not learned again; the state so far is saved in a snapshot first.";
    if (!confirm(`Restore ${this.model} to its state of ${moment(snapshot.time)}? ${lost}`)) return;
    this.act("Restoring", post(ofModel(this.model, "/restore"), JSON.stringify({ snapshot: snapshot.id, replay_log: false })));
  }

  async act(what, request) {
    this.say(`${what} …`);
    const reply = await request;
    if (reply.ok) await this.list();
    const refused = reply.status === 403 ? "This token may not do that: it takes one of the scope admin." : reply.detail;
    this.say(reply.ok ? `${what}: done.` : refused);
  }

  say(text) {
    write(this.snapshots.querySelector("#snapshots-note"), text);
  }
}

function figuresOf({ t, evaluation }) {
  const figures = dayOf(evaluation);
  return [
    ["Examples", count(t)],
    ["AUC", decimals(figures.auc, 4)],
    ["Log loss", decimals(figures.log_loss, 4)],
    ["Calibration", known(figures.calibration_ratio) ? `${decimals(figures.calibration_ratio, 2)} ×` : UNKNOWN],
  ];
}

// The last day's figures at that time: of what was served where that is known.
function dayOf(evaluation) {
  const sources = evaluation?.sources ?? {};
  const windows = sources.served ?? sources.progressive ?? {};
  return (windows.windows ?? windows)["24h"] ?? {}; // a snapshot has them as the API reports them
}

const moment = (text) => new Date(text).toLocaleString("en-GB");

function expertText({ alpha, half_life_examples: examples, half_life_seconds: seconds, l1 }) {
  const parts = [known(alpha) && `α ${alpha}`, known(l1) && `l1 ${l1}`, known(examples) && `half-life ${count(examples)} examples`, known(seconds) && `half-life ${count(seconds)} s`];
  return parts.filter(Boolean).join(", ");
}

function forgettingOf({ forgetting, rate }) {
  if (forgetting) return Object.entries(forgetting).map(([name, value]) => `${name.replaceAll("_", " ")} ${count(value)}`).join(", ");
  return rate?.experts?.some((expert) => known(expert.half_life_examples) || known(expert.half_life_seconds)) ? "half-life of each expert" : "none";
}

function factsOf({ hyper, hashing, feedback, evaluation, snapshots }) {
  const rate = hyper.rate ?? {};
  const rates = rate.experts ? `mixture of ${rate.experts.length} experts` : [rate.kind, known(rate.alpha) && `α ${rate.alpha}`, known(rate.beta) && `β ${rate.beta}`].filter(Boolean).join(", ");
  return [
    ["Family", hyper.family],
    ["Rate", rates],
    ["Penalties", [known(hyper.l1) ? `l1 ${hyper.l1}` : "l1 of each expert", `l2 ${hyper.l2}`].join(", ")],
    ["Forgetting", forgettingOf(hyper)],
    ["Features dropped", known(hyper.drop_below) ? `of weight 0 with n below ${hyper.drop_below}` : "never"],
    ["Slots", `2^${hashing.bits}`],
    ["Crosses", hashing.crosses?.length ? hashing.crosses.map((names) => names.join("^")).join(", ") : "none"],
    ["Sliced by", evaluation?.slices?.join(", ") || "nothing"],
    ["Late labels", feedback?.log ? `logged, window ${count(feedback.window_seconds)} s` : "predictions are logged if asked"],
    ["Automatic rollback", snapshots?.auto_rollback ? "on" : "off"],
  ];
}
