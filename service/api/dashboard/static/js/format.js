// Numbers and times as people read them. What is not known is a dash.
export const UNKNOWN = "–";

const grouped = new Intl.NumberFormat("en");

export const known = (value) => typeof value === "number" && Number.isFinite(value);

export const decimals = (value, digits) => (known(value) ? value.toFixed(digits) : UNKNOWN);

export const count = (value) => (known(value) ? grouped.format(Math.round(value)) : UNKNOWN);

// The text of a feature; the members of a cross are joined by a control character.
export const named = (feature) => feature.replaceAll("\u001f", " × ");

export const rate = (value) => {
  if (!known(value)) return UNKNOWN;
  return value > 0 && value < 9.95 ? value.toFixed(1) : count(value);
};

export const percent = (share) => {
  if (!known(share)) return UNKNOWN;
  const value = share * 100;
  if (value === 0 || value >= 9.995) return `${value.toFixed(1)} %`;
  return `${value.toPrecision(value < 0.01 ? 1 : 3)} %`;
};

export const milliseconds = (seconds) => {
  if (!known(seconds)) return [UNKNOWN, ""];
  if (seconds >= 1) return [seconds.toPrecision(3), "s"];
  const value = seconds * 1000;
  return [value >= 99.5 ? value.toFixed(0) : value.toPrecision(2), "ms"];
};

// The two ends of a 95 % interval; empty where it is not known, as of a learner of an older version.
export const range = (interval, format) => (interval ? interval.map(format).join(" to ") : "");

export const span = (seconds) => {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  }
  return `${Math.max(0, Math.round(seconds))} s`;
};

export const probability = (value) => {
  if (!known(value)) return UNKNOWN;
  return value === 0 ? "0" : String(Number(value.toPrecision(3)));
};
