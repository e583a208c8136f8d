/* global uPlot */
// A chart of the past with axes, one line or several, and a mark where something happened.
import { resolved } from "./colours.js";
import { scaled } from "./scale.js";

const LINES = ["--accent", "--good", "--watch", "--bad", "--violet", "--teal", "--quiet", "--ink"];
const HEIGHT = 150;
const SHORT = 600;
const DAY = 86400;

const clock = (at, length) => {
  const time = new Date(at * 1000);
  if (length > 2 * DAY) return time.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  const seconds = length < SHORT ? { second: "2-digit" } : {};
  return time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...seconds });
};

export class Chart {
  // `onTime` is called with the index of the time that the pointer is at, or null.
  constructor(place, { format, scale, lines = 1 }, onTime) {
    Object.assign(this, { place, format, scale, lines, onTime, chart: null, marks: [] });
    new ResizeObserver(() => this.resize()).observe(place);
    document.addEventListener("themechange", () => this.chart?.redraw());
  }

  draw(times, columns, marks, start, end) {
    Object.assign(this, { marks, start, end });
    const data = [times, ...columns];
    if (this.chart) this.chart.setData(data);
    else if (this.place.clientWidth > 0) this.chart = new uPlot(this.options(), data, this.place);
  }

  resize() {
    if (this.chart && this.place.clientWidth > 0) this.chart.setSize({ width: this.place.clientWidth, height: HEIGHT });
  }

  options() {
    const axis = { stroke: () => resolved("--quiet"), grid: { stroke: () => resolved("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return {
      width: this.place.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      padding: [8, 8, 0, 0],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { x: { time: false, range: () => [this.start, this.end] }, y: { range: (_, low, high) => scaled(low, high, this.scale) } },
      axes: [
        { ...axis, size: 26, space: 84, values: (_, times) => times.map((time) => clock(time, this.end - this.start)) },
        { ...axis, size: 62, space: 34, values: (_, values) => values.map(this.format) },
      ],
      series: [
        {},
        ...Array.from({ length: this.lines }, (_, line) => ({ stroke: () => resolved(LINES[line]), width: 1.5, points: { show: false }, spanGaps: false })),
      ],
      hooks: {
        drawAxes: [(chart) => this.drawMarks(chart)],
        setCursor: [(chart) => this.onTime(chart.cursor.idx ?? null)],
        ready: [(chart) => chart.over.addEventListener("mouseleave", () => this.onTime(null))],
      },
    };
  }

  drawMarks(chart) {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.setLineDash([4, 4]);
    for (const mark of this.marks) {
      const x = Math.round(chart.valToPos(mark.time, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = resolved(mark.kind === "rollback" ? "--bad" : "--edge");
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }
}

export const colourOf = (line) => LINES[line];
