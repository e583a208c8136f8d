import { element, row } from "./elements.js";
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
  const calibration = known(figures.calibration_ratio) ? `${decimals(figures.calibration_ratio, 2)} ×` : UNKNOWN;
  const mark = off(figures) ? [calibration, element("span", " off", { className: "mark" })] : calibration;
  return row(value, [
    ["Examples", count(figures.examples)],
    ["Clicks", count(figures.clicks)],
    ["Click rate", percent(figures.base_rate)],
    ["Calibration", mark],
    ["AUC", decimals(figures.auc, 4)],
    ["Log loss", decimals(figures.log_loss, 4)],
  ]);
}
