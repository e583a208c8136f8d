// What the sparklines show: the last ten minutes of a model, as far as this tab has seen them.
const MAX_ROWS = 600;
const SECONDS = 600;
const GAP_SECONDS = 4;
export const WINDOWS = ["15m", "30m", "1h", "24h", "all"];
export const OF_WINDOW = ["auc", "log_loss", "calibration_ratio", "base_rate"];
const OF_MODEL = ["predictions", "learned", "latency", "lag", "density"];

const columns = () => [...OF_MODEL, ...["served", "progressive"].flatMap((source) => WINDOWS.flatMap((window) => OF_WINDOW.map((name) => `${source}.${window}.${name}`)))];

export class History {
  constructor(model) {
    this.key = `ftrl.history.${model}`;
    this.clear("");
    this.restore();
  }

  clear(incarnation) {
    this.incarnation = incarnation;
    this.time = [];
    this.values = Object.fromEntries(columns().map((name) => [name, []]));
  }

  // A model that was deleted and created again has no past.
  add(live, figures) {
    if (live.incarnation !== this.incarnation) this.clear(live.incarnation);
    const last = this.time.at(-1);
    if (last !== undefined && live.time <= last) return;
    if (last !== undefined && live.time - last > GAP_SECONDS) this.push(last + 1, () => null);
    const now = {
      predictions: live.rates.predictions,
      learned: live.rates.learned,
      latency: live.rates.of_model?.p99,
      lag: live.lag?.seconds,
      density: figures?.measures?.density,
    };
    this.push(live.time, (name) => {
      if (name in now) return now[name] ?? null;
      const [source, window, measure] = name.split(".");
      return figures?.sources?.[source]?.[window]?.[measure] ?? null;
    });
  }

  push(time, valueOf) {
    this.time.push(time);
    for (const [name, values] of Object.entries(this.values)) values.push(valueOf(name));
    while (this.time.length > MAX_ROWS || this.time[0] < time - SECONDS) {
      this.time.shift();
      for (const values of Object.values(this.values)) values.shift();
    }
  }

  column(name) {
    return this.values[name] ?? [];
  }

  // Over a reload of the tab.
  keep() {
    try {
      sessionStorage.setItem(this.key, JSON.stringify({ incarnation: this.incarnation, time: this.time, values: this.values }));
    } catch {
      // Storage is full or forbidden: after a reload the history starts empty.
    }
  }

  restore() {
    try {
      const kept = JSON.parse(sessionStorage.getItem(this.key));
      if (kept && Object.keys(kept.values).join() === columns().join()) {
        Object.assign(this, kept);
      }
    } catch {
      // As above.
    }
  }
}
