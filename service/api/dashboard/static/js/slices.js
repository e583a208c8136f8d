import { UNKNOWN, count, decimals, known, percent } from "./format.js";

export const off = (figures) =>
  known(figures?.calibration_ratio) &&
  known(figures.calibration_tolerance) &&
  Math.abs(figures.calibration_ratio - 1) > figures.calibration_tolerance;

// The table of one feature's values, the commonest first, those without examples in the window left out.
export function fillSlices(body, values, window) {
  const rows = Object.entries(values ?? {})
    .map(([value, windows]) => [value, windows[window]])
    .filter(([, figures]) => figures?.examples > 0)
    .sort(([, a], [, b]) => b.examples - a.examples);
  body.replaceChildren(...rows.map(([value, figures]) => line(value, figures)));
}

function line(value, figures) {
  const row = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = value;
  row.append(head);
  const texts = [
    count(figures.examples),
    count(figures.clicks),
    percent(figures.base_rate),
    known(figures.calibration_ratio) ? `${decimals(figures.calibration_ratio, 2)} ×` : UNKNOWN,
    decimals(figures.auc, 4),
    decimals(figures.log_loss, 4),
  ];
  const cells = texts.map((text) => {
    const cell = row.insertCell();
    cell.textContent = text;
    return cell;
  });
  if (off(figures)) {
    const mark = document.createElement("span");
    mark.className = "mark";
    mark.textContent = " off";
    cells[3].append(mark);
  }
  return row;
}
