// The history of a model, as the service keeps it: charts of the chosen span, and what happened.
import { call, ofModel } from "./api.js";
import { Chart, colourOf } from "./chart.js";
import { element, write } from "./elements.js";
import { UNKNOWN, decimals, known, milliseconds, percent, rate } from "./format.js";

const SECONDS = { "1h": 3600, "24h": 86400, "7d": 7 * 86400, "30d": 30 * 86400 };
const RETRY_MS = 3000;
const EVERY_MS = { "1h": 10000, "24h": 60000, "7d": 300000, "30d": 600000 };
const WINDOWS = { "15m": "15m", "30m": "15m", "1h": "1h", "24h": "24h", all: "24h" };
const SPOKEN = { "15m": "15 minutes", "1h": "hour", "24h": "24 hours" };
const HAPPENED = { start: "A learner took over", snapshot: "Snapshot", restore: "Restored", rollback: "Rolled back", promotion: "Challenger promoted", load: "State loaded", alias: "Alias", settings: "Settings" };
const MAX_MARKS = 12;
const LEAST_SHARE = 30; // of the span: a history that has just begun is drawn over a thirtieth of it

const lag = (value) => (value > 0 ? milliseconds(value).join(" ") : "0 s");
const KINDS = [
  { id: "auc", title: "AUC", ofWindow: true, format: (value) => decimals(value, 3), scale: { least: 0.02 } },
  { id: "log_loss", title: "Log loss", ofWindow: true, format: (value) => decimals(value, 3), scale: { share: 0.1 } },
  { id: "calibration_ratio", title: "Calibration", ofWindow: true, format: (value) => decimals(value, 2), scale: { least: 0.2 } },
  { id: "base_rate", title: "Click rate", ofWindow: true, format: percent, scale: { share: 0.2 } },
  { id: "learned", title: "Updates learned per second", format: rate, scale: { zero: true } },
  { id: "lag_seconds", title: "Learner lag", format: lag, scale: { zero: true, least: 1 } },
];
const EXPERTS = { id: "experts", title: "Weight of each expert", format: percent, scale: { zero: true, least: 1 } };

export class Past {
  constructor(place) {
    this.place = place;
    this.charts = place.querySelector(".charts");
    this.model = "";
    this.span = "1h";
    this.window = "1h";
    this.experts = [];
    this.clear();
    place.querySelector(".segments").addEventListener("change", (event) => this.follow(this.model, event.target.value));
    setInterval(() => this.poll(), 1000);
  }

  clear() {
    this.found = null;
    this.asked = 0;
    this.drawn = new Map();
    this.charts.replaceChildren();
  }

  follow(model, span = this.span) {
    if (model === this.model && span === this.span) return;
    Object.assign(this, { model, span });
    this.clear();
    this.poll();
  }

  // The window of the figures of quality, and how the experts of a mixture are named.
  show(window, experts) {
    const changed = WINDOWS[window] !== this.window || experts.join() !== this.experts.join();
    Object.assign(this, { window: WINDOWS[window], experts });
    if (changed) this.render();
  }

  async poll() {
    if (!this.model || document.hidden || Date.now() < this.asked + EVERY_MS[this.span]) return;
    this.asked = Date.now();
    const [model, span] = [this.model, this.span];
    const reply = await call(ofModel(model, `/history?span=${span}`));
    if (model !== this.model || span !== this.span) return;
    if (!reply.ok) {
      this.asked -= EVERY_MS[span] - RETRY_MS;
      write(this.place.querySelector(".note"), `${this.found ? "As it was when it was last read" : "Not known"}: ${reply.detail}`);
      return;
    }
    this.found = reply.content;
    this.render();
  }

  render() {
    const found = this.found;
    if (!found) return;
    const rows = found.time.length;
    write(this.place.querySelector(".note"), rows ? `Quality over the ${SPOKEN[this.window]} before each moment` : "There is no history yet: the learner adds to it every five seconds while it learns.");
    this.end = Math.max(Date.now() / 1000, found.time.at(-1) ?? 0);
    const length = SECONDS[this.span];
    const young = Math.min(found.time[0] ?? this.end, found.marks[0]?.time ?? this.end, this.end - length / LEAST_SHARE);
    this.start = Math.max(this.end - length, young);
    for (const kind of KINDS) this.draw(kind, [kind.ofWindow ? found.windows[this.window][kind.id] : found[kind.id]], []);
    if (found.experts.length > 1) this.draw(EXPERTS, found.experts, this.experts);
    this.renderMarks(found.marks.filter((mark) => mark.time >= this.start));
  }

  draw(kind, columns, names) {
    if (!this.drawn.has(kind.id)) this.drawn.set(kind.id, this.panel(kind, columns.length));
    const panel = this.drawn.get(kind.id);
    Object.assign(panel, { columns, names });
    panel.chart.draw(this.found.time, columns, this.found.marks, this.start, this.end);
    this.readOff(panel, null);
  }

  panel(kind, lines) {
    const figure = element("figure", [element("figcaption", kind.title), element("p", "", { className: "reading" }), element("div", "", { className: "canvas" })]);
    figure.id = `past-${kind.id}`;
    const canvas = figure.querySelector(".canvas");
    canvas.setAttribute("role", "img");
    this.charts.append(figure);
    const panel = { kind, figure, canvas };
    panel.chart = new Chart(canvas, { ...kind, lines }, (index) => this.readOff(panel, index));
    return panel;
  }

  // What the pointer is at, else the last values.
  readOff(panel, index) {
    if (!panel.columns) return;
    const { kind, columns, names } = panel;
    const at = index ?? columns[0].findLastIndex(known);
    const texts = columns.map((column) => (known(column[at]) ? kind.format(column[at]) : UNKNOWN));
    const when = this.found.time[at] === undefined ? "" : moment(this.found.time[at]);
    const reading = panel.figure.querySelector(".reading");
    if (columns.length === 1) write(reading, at < 0 ? "Not known yet" : `${texts[0]}, ${when}`);
    else reading.replaceChildren(...texts.map((text, line) => legend(line, `${names[line] ?? `Expert ${line + 1}`}: ${text}`)));
    panel.canvas.setAttribute("aria-label", `${kind.title}: ${texts.join(", ")} at ${when || "no time"}`);
  }

  renderMarks(marks) {
    const latest = marks.slice(-MAX_MARKS).reverse();
    const list = this.place.querySelector(".marks");
    list.hidden = !latest.length;
    list.replaceChildren(
      ...latest.map(({ time, kind, detail }) => element("li", [element("time", moment(time)), element("b", HAPPENED[kind] ?? kind), element("span", detail)])),
    );
  }
}

function legend(line, text) {
  const key = element("span", "", { className: "key" });
  key.style.background = `var(${colourOf(line)})`;
  return element("span", [key, text], { className: "line" });
}

function moment(seconds) {
  const time = new Date(seconds * 1000);
  return time.toDateString() === new Date().toDateString() ? time.toLocaleTimeString("en-GB") : time.toLocaleString("en-GB");
}
