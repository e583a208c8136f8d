// The challengers of a model: by how much the log loss of each is lower than the champion's, with the band of its confidence sequence.
import { call, ofModel } from "./api.js";
import { drawn, element, row } from "./elements.js";
import { UNKNOWN, count, decimals, known } from "./format.js";

const EVERY_MS = 5000;
const HEIGHT = 190;
const MARGIN = { left: 62, right: 14, top: 10, bottom: 38 };
const LEVELS = { better: "good", worse: "bad", undecided: "none" };

export class Challengers {
  constructor(place) {
    this.place = place;
    this.model = "";
    setInterval(() => document.hidden || this.look(), EVERY_MS);
  }

  follow(model) {
    if (model === this.model) return;
    this.model = model;
    this.place.hidden = true;
    this.look();
  }

  async look() {
    const model = this.model;
    if (!model) return;
    const reply = await call(ofModel(model, "/challengers"));
    if (model !== this.model || !reply.ok) return;
    const found = reply.content.challengers;
    this.place.hidden = found.length === 0;
    this.place.querySelector("tbody").replaceChildren(...found.map(line));
    const courses = this.place.querySelector(".courses");
    courses.replaceChildren(...found.filter(({ comparison }) => comparison.course.length > 1).map((one) => courseOf(one, courses)));
  }
}

const signed = (share) => (known(share) ? `${share > 0 ? "+" : share < 0 ? "−" : ""}${Number(Math.abs(share * 100).toPrecision(3))} %` : UNKNOWN);

function line({ name, behind_examples: behind, differs, comparison: found }) {
  const loss = found.champion.log_loss;
  const bounds = found.interval && loss ? found.interval.map((bound) => signed(bound / loss)).join(" to ") : "";
  const verdict = element("span", found.verdict, { className: "said" });
  verdict.dataset.level = LEVELS[found.verdict];
  const since = found.verdict === "undecided" ? "" : ` since ${count(found.verdict_pairs)} pairs`;
  return row(element("a", name, { href: `?model=${encodeURIComponent(name)}` }), [
    ["Verdict", [verdict, since]],
    ["Gain", signed(found.relative_difference)],
    ["95 % band", bounds],
    ["Pairs", count(found.pairs)],
    ["Behind", count(behind)],
    ["Calibration", `${decimals(found.challenger.calibration_ratio, 3)} (champion ${decimals(found.champion.calibration_ratio, 3)})`],
    ["Differs in", Object.entries(differs).map(difference).join(", ") || UNKNOWN],
  ]);
}

const difference = ([path, { challenger }]) => (challenger !== null && typeof challenger === "object" ? path : `${path}: ${challenger}`);

// Two lines, the champion's at 0 and the challenger's, which is above where its log loss is lower.
function courseOf({ name, comparison }, courses) {
  const points = comparison.course.map(({ pairs, champion_log_loss: loss, difference: gain, interval }) => ({
    pairs,
    gain: gain / loss,
    low: interval[0] / loss,
    high: interval[1] / loss,
  }));
  const last = points.at(-1);
  const reach = 2.5 * Math.max(Math.abs(last.low), Math.abs(last.high));
  const width = courses.clientWidth;
  const [across, down] = [width - MARGIN.left - MARGIN.right, HEIGHT - MARGIN.top - MARGIN.bottom];
  const x = (pairs) => (pairs / last.pairs) * across;
  const y = (share) => ((reach - share) / (2 * reach)) * down;
  const svg = drawn("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": described(name, comparison) });
  for (const share of [-reach / 1.25, 0, reach / 1.25]) {
    const at = MARGIN.top + y(share);
    svg.append(drawn("line", { class: share === 0 ? "champion" : "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }));
    svg.append(drawn("text", { x: MARGIN.left - 8, y: at + 4, "text-anchor": "end" }, share === 0 ? "champion" : signed(Number(share.toPrecision(2)))));
  }
  const inner = drawn("svg", { x: MARGIN.left, y: MARGIN.top, width: across, height: down }); // cuts off what is outside
  const edge = (bound) => points.map((point) => `${x(point.pairs)},${y(point[bound])}`);
  inner.append(drawn("polygon", { class: "band", points: [...edge("low"), ...edge("high").reverse()].join(" ") }));
  inner.append(drawn("polyline", { class: "line", points: edge("gain").join(" ") }));
  svg.append(inner);
  svg.append(drawn("text", { x: width - MARGIN.right, y: HEIGHT - 20, "text-anchor": "end" }, `${count(last.pairs)} pairs`));
  svg.append(drawn("text", { x: MARGIN.left + across / 2, y: HEIGHT - 4, "text-anchor": "middle" }, `gain of ${name}, in % of the champion's log loss`));
  return svg;
}

function described(name, { relative_difference: gain, verdict, pairs }) {
  return `Gain of ${name} over ${count(pairs)} pairs: now ${signed(gain)} of the champion's log loss; ${verdict}. The table has its band.`;
}
