// The features with the largest weights, of those whose names are known.
import { call, ofModel } from "./api.js";
import { element, row, write } from "./elements.js";
import { UNKNOWN, count, decimals, known, named } from "./format.js";

const MOST = 30;
const EVERY_MS = 3000;

export class Features {
  constructor(place) {
    this.place = place;
    this.model = "";
    place.addEventListener("toggle", () => place.open && this.list());
    setInterval(() => place.open && !document.hidden && this.list(), EVERY_MS);
  }

  follow(model) {
    if (model === this.model) return;
    this.model = model;
    this.place.querySelector("tbody").replaceChildren();
    if (this.place.open) this.list();
  }

  async list() {
    const model = this.model;
    const reply = await call(ofModel(model, `/features?by=weight&most=${MOST}`));
    if (model !== this.model) return;
    const { features = [], known: all } = reply.content;
    write(this.place.querySelector("#features-note"), reply.ok ? said(features.length, all) : reply.detail);
    this.place.querySelector("tbody").replaceChildren(...features.map(line));
  }
}

const said = (shown, all) =>
  shown ? `The ${count(shown)} largest weights of the ${count(all)} most seen features.` : "No names are known: none came yet, or FTRL_FEATURE_NAMES is off.";

function line({ names, slot, weight, learning_rate: rate }) {
  const [first, ...others] = names.map(named);
  const name = others.length ? [first, element("span", ` and in the same slot: ${others.join(", ")}`, { className: "quiet" })] : first;
  return row(name, [
    ["Weight", decimals(weight, 4)],
    ["Learning rate", known(rate) ? decimals(rate, 4) : UNKNOWN],
    ["Slot", String(slot)],
  ]);
}
