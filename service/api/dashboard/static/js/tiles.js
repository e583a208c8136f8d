import { UNKNOWN, count, decimals, known, milliseconds, percent, range, rate, span } from "./format.js";
import { off } from "./slices.js";
import { Sparkline } from "./sparkline.js";

const MIN_CLICKS = 50;
const MIN_SECONDS = 60; // of a sparkline, or its first points would fill it

// What a tile says: [value, unit, note, level?]; `now` is {live, figures, window} of which anything may be missing.
const unknownUntil = (now, note) => {
  if (!now.evaluation) return now.live && !now.live.lag ? "Redis does not answer: not known." : "No figures yet.";
  const clicks = now.figures?.clicks ?? 0;
  return clicks < MIN_CLICKS ? `Needs ${MIN_CLICKS} clicks: ${count(clicks)} so far.` : note;
};

const fixed = (digits) => (value) => decimals(value, digits);

const QUALITY = [
  {
    id: "auc",
    title: "AUC",
    column: "auc",
    scale: { least: 0.02 },
    digits: 4,
    say: ({ figures, ...now }) =>
      known(figures?.auc)
        ? [decimals(figures.auc, 4), range(figures.auc_interval, fixed(3)), "How often a click was ranked above a non-click."]
        : [UNKNOWN, "", unknownUntil({ figures, ...now }, "There are only clicks, or none.")],
  },
  {
    id: "log_loss",
    title: "Log loss",
    column: "log_loss",
    scale: { share: 0.1 },
    digits: 4,
    say: ({ figures, ...now }) =>
      known(figures?.log_loss)
        ? [
            decimals(figures.log_loss, 4),
            range(figures.log_loss_interval, fixed(3)),
            known(figures.normalized_entropy)
              ? `In nats; ${decimals(figures.normalized_entropy, 3)} of what the click rate alone would cost.`
              : "In nats.",
          ]
        : [UNKNOWN, "", unknownUntil({ figures, ...now }, "")],
  },
  {
    id: "calibration_ratio",
    title: "Calibration",
    column: "calibration_ratio",
    scale: { least: 0.2 },
    digits: 3,
    say: ({ figures, ...now }) =>
      known(figures?.calibration_ratio)
        ? [
            decimals(figures.calibration_ratio, 3),
            range(figures.calibration_ratio_interval, fixed(2)),
            `Predicted clicks over clicks; 1 is right, ${decimals(1 - figures.calibration_tolerance, 2)} to ${decimals(1 + figures.calibration_tolerance, 2)} may be chance.`,
            off(figures) ? "bad" : "good",
          ]
        : [UNKNOWN, "", unknownUntil({ figures, ...now }, "")],
  },
  {
    id: "base_rate",
    title: "Click rate",
    column: "base_rate",
    scale: { share: 0.2 },
    format: percent,
    say: ({ figures, ...now }) =>
      known(figures?.base_rate)
        ? [
            percent(figures.base_rate),
            range(figures.base_rate_interval, percent),
            `Predicted ${percent(figures.mean_prediction)}; ${count(figures.clicks)} clicks of ${count(figures.examples)}.`,
          ]
        : [UNKNOWN, "", unknownUntil({ figures, ...now }, "")],
  },
];

const TRAFFIC = [
  {
    id: "predictions",
    title: "Predictions",
    column: "predictions",
    scale: { zero: true },
    digits: 0,
    say: ({ live }) => [
      rate(live?.rates.predictions),
      "per second",
      known(live?.rates.requests) ? `${rate(live.rates.requests)} requests per second of all models.` : "",
    ],
  },
  {
    id: "updates",
    title: "Updates learned",
    column: "learned",
    scale: { zero: true },
    digits: 0,
    say: ({ live }) => [rate(live?.rates.learned), "per second", live ? `${count(live.t)} examples in all.` : ""],
  },
  {
    id: "latency",
    title: "Latency of predictions",
    column: "latency",
    scale: { zero: true, least: 0.005 },
    format: (value) => milliseconds(value).join(" "),
    say: ({ live }) => {
      const { predict, of_model: own, update } = live?.rates ?? {};
      const whole = [["predictions", predict], ["updates", update]].filter(([, latency]) => latency);
      const others = whole.length ? ` Whole requests of all models: ${whole.map(([what, { p99 }]) => `${what} ${milliseconds(p99).join(" ")}`).join(", ")}.` : "";
      if (!own) return [UNKNOWN, "", `No predictions in the last minute.${others}`];
      const [value, unit] = milliseconds(own.p99);
      return [value, `${unit}, 99th percentile`, `Half within ${milliseconds(own.p50).join(" ")}.${others}`];
    },
  },
  {
    id: "lag",
    title: "Learner lag",
    column: "lag",
    scale: { zero: true, least: 1 },
    format: (value) => (value > 0 ? milliseconds(value).join(" ") : "0 s"),
    say: ({ live }) => {
      if (!live) return [UNKNOWN, "", ""];
      if (!live.lag) return [UNKNOWN, "", "Redis does not answer."];
      const waiting = live.lag.examples === 1 ? "1 example waits" : `${count(live.lag.examples)} examples wait`;
      const [value, unit] = live.lag.seconds > 0 ? milliseconds(live.lag.seconds) : ["0", "s"];
      const lag = live.learner ? `${waiting} to be learned.` : `${waiting}, and no learner runs.`;
      return [value, unit, live.awaiting ? `${lag} ${live.awaiting}` : lag];
    },
  },
];

const STATE = [
  {
    id: "density",
    title: "Density",
    column: "density",
    scale: { share: 0.2 },
    format: percent,
    say: ({ live, evaluation }) => {
      const measures = evaluation?.measures;
      if (!known(measures?.density)) return [UNKNOWN, "", "Not counted yet."];
      return [
        ...percent(measures.density).split(" "),
        `${count(measures.nonzero)} weights other than 0 of ${count(measures.features_seen ?? live?.features_seen)} features seen.`,
      ];
    },
  },
];

export const GROUPS = { "quality-tiles": QUALITY, "traffic-tiles": TRAFFIC, "state-tiles": STATE };

export class Tile {
  constructor(place, kind) {
    this.kind = kind;
    this.element = document.getElementById("tile").content.firstElementChild.cloneNode(true);
    this.element.id = `tile-${kind.id}`;
    this.part(".value").id = kind.id;
    this.part("h3").textContent = kind.title;
    place.append(this.element);
    this.part(".spark").setAttribute("aria-label", `${kind.title}: nothing to draw yet`);
    this.spark = new Sparkline(this.part(".spark"), kind.scale, (index) => this.readOff(index));
  }

  part(selector) {
    return this.element.querySelector(selector);
  }

  format(value) {
    return this.kind.format ? this.kind.format(value) : this.kind.digits ? decimals(value, this.kind.digits) : rate(value);
  }

  show(now, history) {
    const [value, unit, note, level] = this.kind.say(now);
    this.part(".value").textContent = value;
    this.part(".unit").textContent = unit;
    this.part(".note").textContent = note;
    this.element.dataset.level = level ?? "none";
    if (history) this.showPast(history, now);
  }

  showPast(history, now) {
    const ofWindow = now.ofWindow.includes(this.kind.column);
    const column = history.column(ofWindow ? `${now.source}.${now.window}.${this.kind.column}` : this.kind.column);
    this.times = history.time;
    this.values = column;
    this.end = history.time.at(-1) ?? 0;
    this.start = Math.min(history.time[0] ?? 0, this.end - MIN_SECONDS);
    this.spark.draw(history.time, column, this.start, this.end);
    if (!this.reading) this.showRange();
  }

  showRange() {
    const present = (this.values ?? []).filter(known);
    if (!present.length) {
      this.say("", "");
      return;
    }
    const [low, high] = [Math.min(...present), Math.max(...present)].map((value) => this.format(value));
    const text = low === high ? low : `${low} to ${high}`;
    const length = span(this.end - this.start);
    this.say(length, text);
    this.part(".spark").setAttribute("aria-label", `${this.kind.title} in the last ${length}: ${text}`);
  }

  readOff(index) {
    this.reading = index !== null && known(this.values?.[index]);
    if (this.reading) this.say(`${span(this.end - this.times[index])} ago`, this.format(this.values[index]));
    else this.showRange();
  }

  say(left, right) {
    const [first, second] = [left, right].map((text) => {
      const part = document.createElement("span");
      part.textContent = text;
      return part;
    });
    this.part(".range").replaceChildren(first, second);
  }
}
