// All models at once: a line for each.
import { call } from "./api.js";
import { element, markOf, row, write } from "./elements.js";
import { UNKNOWN, count, decimals, known, milliseconds, range, rate, span } from "./format.js";

const EVERY_MS = 3000;

export class Overview {
  // `onModels` is called with what each reading found, or with why there was none.
  constructor(place, onModels) {
    this.place = place;
    this.onModels = onModels;
    this.shown = false;
    this.asked = 0;
    setInterval(() => this.poll(), 1000);
  }

  show(shown) {
    this.shown = shown;
    this.place.hidden = !shown;
    if (shown) this.poll();
  }

  async poll() {
    if (!this.shown || document.hidden || Date.now() < this.asked + EVERY_MS) return;
    await this.read();
  }

  async read() {
    this.asked = Date.now();
    const reply = await call("overview");
    if (reply.ok) this.render(reply.content);
    else if (reply.status !== 403) this.markOld(reply.detail);
    this.onModels(reply);
  }

  markOld(detail) {
    this.place.classList.add("stale");
    write(this.place.querySelector(".note"), `As it was when it was last read: ${detail}`);
  }

  render({ models, left_out: leftOut, time }) {
    const note = leftOut.length ? `The first ${models.length}; ${count(leftOut.length)} more are below the table.` : "";
    this.place.classList.remove("stale");
    write(this.place.querySelector(".note"), note);
    this.place.querySelector("tbody").replaceChildren(...models.map((model) => line(model, time)));
    const others = this.place.querySelector("#left-out");
    others.hidden = !leftOut.length;
    others.replaceChildren(...leftOut.flatMap((name) => [linkTo(name), " "]));
  }
}

function line(model, now) {
  const status = element("span", [markOf(model.level), ` ${model.headline}`], { className: "status" });
  status.dataset.level = model.level;
  return row(linkTo(model.model), [
    ["Status", status],
    ["AUC", figure(decimals(model.auc, 4), range(model.auc_interval, (edge) => decimals(edge, 3)))],
    ["Log loss", decimals(model.log_loss, 4)],
    ["Calibration", known(model.calibration_ratio) ? `${decimals(model.calibration_ratio, 2)} ×` : UNKNOWN],
    ["Updates a second", rate(model.learned)],
    ["Lag", model.lag.seconds > 0 ? milliseconds(model.lag.seconds).join(" ") : "0 s"],
    ["Newest snapshot", age(model.snapshot, now)],
    ["Aliases", model.aliases.join(", ") || "none"],
  ]);
}

const linkTo = (name) => element("a", name, { href: `?model=${encodeURIComponent(name)}` });

function figure(value, interval) {
  return interval ? element("span", [value, element("small", interval)], { className: "with-interval" }) : value;
}

// Ids of snapshots begin with their time.
function age(snapshot, now) {
  const [, year, month, day, hour, minute, second] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)/.exec(snapshot ?? "") ?? [];
  if (!year) return UNKNOWN;
  return `${span(now - Date.UTC(year, month - 1, day, hour, minute, second) / 1000)} old`;
}
