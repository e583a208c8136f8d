/* global uPlot */
// A line of the last ten minutes; the pointer reads it off.
const probes = new Map();

// A canvas does not know light-dark(): an element that uses the colour has it resolved.
function resolved(name) {
  if (!probes.has(name)) {
    const probe = document.createElement("span");
    probe.className = "hidden";
    probe.setAttribute("aria-hidden", "true");
    document.body.append(probe);
    probe.style.color = `var(${name})`;
    probes.set(name, probe);
  }
  return getComputedStyle(probes.get(name)).color;
}

export class Sparkline {
  constructor(place, onPoint) {
    this.place = place;
    this.onPoint = onPoint;
    this.chart = null;
    new ResizeObserver(() => this.resize()).observe(place);
    document.addEventListener("themechange", () => this.chart?.redraw());
  }

  draw(times, values, start, end) {
    const data = [times, values];
    this.start = start;
    this.end = end;
    if (this.chart) this.chart.setData(data);
    else if (this.place.clientWidth > 0) this.chart = new uPlot(this.options(), data, this.place);
  }

  resize() {
    if (this.chart && this.place.clientWidth > 0) {
      this.chart.setSize({ width: this.place.clientWidth, height: this.place.clientHeight });
    }
  }

  options() {
    return {
      width: this.place.clientWidth,
      height: this.place.clientHeight,
      legend: { show: false },
      axes: [{ show: false }, { show: false }],
      padding: [4, 3, 3, 3],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { time: false, range: () => [this.start, this.end] },
        y: { range: (_, low, high) => this.range(low, high) },
      },
      series: [
        {},
        { stroke: () => resolved("--accent"), width: 1.5, points: { show: false }, spanGaps: false },
      ],
      hooks: {
        setCursor: [(chart) => this.onPoint(chart.cursor.idx ?? null)],
        ready: [(chart) => chart.over.addEventListener("mouseleave", () => this.onPoint(null))],
      },
    };
  }

  // A flat line is drawn in the middle, so that it cannot be mistaken for an outage.
  range(low, high) {
    if (low === null || high === null) return [0, 1];
    const margin = high > low ? (high - low) * 0.08 : Math.abs(high) * 0.1 || 1;
    return [low - margin, high + margin];
  }
}
