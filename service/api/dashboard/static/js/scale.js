// The range of an axis. It has a least length, so that noise does not look like a fall: `least` is absolute, and
// `share` relative to the values. With `zero` it begins at 0.
export function scaled(low, high, { least = 0, share = 0, zero = false } = {}) {
  if (low === null || high === null || low === undefined) return [0, 1];
  if (zero) return [0, Math.max(high * 1.08, least || 1)];
  const middle = (low + high) / 2;
  const length = Math.max((high - low) * 1.16, least, share * Math.abs(middle)) || 1;
  return [middle - length / 2, middle + length / 2];
}
