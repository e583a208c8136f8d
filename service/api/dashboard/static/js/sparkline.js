/* global uPlot */
// A line of the last ten minutes; the pointer reads it off.
import { resolved } from "./colours.js";
import { scaled } from "./scale.js";

export class Sparkline {
  // `scale`: the least that its range has, as in scale.js.
  constructor(place, scale, onPoint) {
    this.place = place;
    this.scale = scale;
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
        y: { range: (_, low, high) => scaled(low, high, this.scale) },
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
}
