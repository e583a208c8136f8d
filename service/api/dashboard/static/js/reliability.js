import { drawn as make, row } from "./elements.js";
import { count, percent, probability, range } from "./format.js";

// Click rate against mean prediction, both on logarithmic axes; the size of a point follows its examples, and
// its bar is the 95 % interval of the click rate.
const MARGIN = { left: 54, right: 26, top: 10, bottom: 40 };

export function drawCurve(place, rows) {
  place.replaceChildren();
  if (!rows?.length) {
    const note = document.createElement("p");
    note.textContent = "There is a curve once the window holds 50 clicks.";
    place.append(note);
    return;
  }
  const [width, height] = [place.clientWidth, place.clientHeight];
  const least = Math.min(...rows.map((row) => Math.min(row.mean_prediction, row.click_rate || 1)));
  const decades = Math.min(-1, Math.max(-6, Math.floor(Math.log10(least))));
  const along = (value, length) => (1 - Math.max(decades, Math.log10(value)) / decades) * length;
  const x = (value) => MARGIN.left + along(value, width - MARGIN.left - MARGIN.right);
  const y = (value) => height - MARGIN.bottom - along(value, height - MARGIN.top - MARGIN.bottom);
  const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": described(rows) });
  drawGrid(svg, decades, x, y);
  svg.append(make("line", { class: "ideal", x1: x(10 ** decades), y1: y(10 ** decades), x2: x(1), y2: y(1) }));
  drawRows(svg, rows, x, y, 10 ** decades);
  svg.append(make("text", { x: (MARGIN.left + width) / 2, y: height - 4, "text-anchor": "middle" }, "mean prediction"));
  const middle = (height - MARGIN.bottom) / 2;
  svg.append(make("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, "click rate"));
  place.append(svg);
}

function drawGrid(svg, decades, x, y) {
  for (let power = decades; power <= 0; power++) {
    const value = 10 ** power;
    svg.append(make("line", { class: "grid", x1: x(value), x2: x(value), y1: y(10 ** decades), y2: y(1) }));
    svg.append(make("line", { class: "grid", x1: x(10 ** decades), x2: x(1), y1: y(value), y2: y(value) }));
    svg.append(make("text", { x: x(value), y: y(10 ** decades) + 17, "text-anchor": "middle" }, percentTick(value)));
    svg.append(make("text", { x: x(10 ** decades) - 8, y: y(value) + 4, "text-anchor": "end" }, percentTick(value)));
  }
}

const percentTick = (value) => `${Number((value * 100).toPrecision(3))} %`;

function drawRows(svg, rows, x, y, floor) {
  const most = Math.max(...rows.map((row) => row.examples));
  const line = rows.filter((row) => row.click_rate > 0).map((row) => `${x(row.mean_prediction)},${y(row.click_rate)}`);
  svg.append(make("polyline", { class: "line", points: line.join(" ") }));
  for (const row of rows) {
    const [low, high] = row.click_rate_interval ?? [row.click_rate, row.click_rate];
    const at = x(row.mean_prediction);
    svg.append(make("line", { class: "error", x1: at, x2: at, y1: y(Math.max(low, floor)), y2: y(Math.max(high, floor)) }));
    const radius = 2.5 + 5.5 * Math.sqrt(row.examples / most);
    const never = row.click_rate > 0 ? "" : " never";
    const point = make("circle", { class: `point${never}`, cx: at, cy: y(Math.max(row.click_rate, floor)), r: radius });
    point.append(make("title", {}, `predicted ${percent(row.mean_prediction)}, clicked ${percent(row.click_rate)}, ${count(row.examples)} examples`));
    svg.append(point);
  }
}

function described(rows) {
  const [first, last] = [rows[0], rows.at(-1)];
  return `Reliability curve of ${rows.length} buckets: where ${percent(first.mean_prediction)} was predicted, ${percent(first.click_rate)} clicked; where ${percent(last.mean_prediction)}, ${percent(last.click_rate)}. The table below has all.`;
}

export function fillReliability(body, rows) {
  body.replaceChildren(
    ...(rows ?? []).map(({ low, high, examples, mean_prediction: mean, click_rate: rate, click_rate_interval: interval }) =>
      row(`${probability(low)} to ${probability(high)}`, [
        ["Examples", count(examples)],
        ["Mean prediction", percent(mean)],
        ["Click rate", percent(rate)],
        ["95 % interval", range(interval, percent)],
      ]),
    ),
  );
}
