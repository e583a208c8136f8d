// A form that predicts, and shows what each feature adds.
import { ofModel, post } from "./api.js";
import { element, write } from "./elements.js";
import { count, decimals, named, percent } from "./format.js";

const MAX_BARS = 30;
const EXAMPLE = { ad: "a17", site: "news.example", hour: 14 };

export class Tryout {
  constructor(place) {
    this.place = place;
    this.model = "default";
    this.text = place.querySelector("textarea");
    this.text.value = JSON.stringify(EXAMPLE, null, 2);
    place.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.predict();
    });
    for (const [id, code] of [["copy-curl", curl], ["copy-python", python]]) {
      place.querySelector(`#${id}`).addEventListener("click", () => this.copy(code));
    }
  }

  follow(model) {
    if (model !== this.model) this.clear();
    this.model = model;
  }

  clear() {
    this.say("");
    this.place.querySelector("#bars").replaceChildren();
  }

  // The features as they were typed, or null, after saying what is wrong with them. JSON.parse would round large integers.
  features() {
    try {
      const features = JSON.parse(this.text.value);
      if (features && typeof features === "object" && !Array.isArray(features)) return this.text.value.trim();
      this.say('Features are an object, as {"ad": "a17"}.');
    } catch (wrong) {
      this.say(`This is not JSON: ${wrong.message}.`);
    }
    return null;
  }

  async predict() {
    const features = this.features();
    if (!features) return;
    const model = this.model;
    const reply = await post(ofModel(model, "/explain"), bodyOf(features));
    if (model !== this.model) return;
    this.clear();
    if (!reply.ok) {
      this.say(reply.detail);
      return;
    }
    const { probability, margin, offset, mixing, revision, features: parts } = reply.content;
    this.say(`Probability ${percent(probability)}: log-odds ${decimals(margin, 3)}, of revision ${revision}.`);
    const others = [{ name: "prior probability", contribution: offset }, { name: "mixing of the experts", contribution: mixing }];
    this.draw([...parts, ...others.filter(({ contribution }) => contribution)]);
  }

  draw(parts) {
    const sorted = parts.toSorted((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
    const most = Math.abs(sorted[0]?.contribution) || 1;
    const bars = sorted.slice(0, MAX_BARS).map((part) => bar(part, most));
    if (sorted.length > MAX_BARS) bars.push(element("li", `and ${count(sorted.length - MAX_BARS)} more that add less`));
    this.place.querySelector("#bars").replaceChildren(...bars);
  }

  async copy(code) {
    const features = this.features();
    if (!features) return;
    try {
      await navigator.clipboard.writeText(code(new URL(ofModel(this.model, "/predict"), location.href).href, features));
      this.say("Copied.");
    } catch {
      this.say("The browser does not let this page write to the clipboard: it takes https, or localhost.");
    }
  }

  say(text) {
    write(this.place.querySelector("#said"), text);
  }
}

function bar({ name, contribution, also_in_slot: others = [] }, most) {
  const length = element("span", "", { className: contribution < 0 ? "length less" : "length" });
  length.style.width = `${(50 * Math.abs(contribution)) / most}%`;
  const value = `${contribution < 0 ? "−" : "+"}${decimals(Math.abs(contribution), 3)}`;
  return element("li", [element("span", named(name), { className: "name", title: others.length ? `In the same slot: ${others.map(named).join(", ")}` : "" }), element("span", [length], { className: "track" }), element("span", value, { className: "amount" })]);
}

const bodyOf = (features) => `{"features": ${features}}`;

const curl = (url, features) => `curl -s ${url} -H 'Content-Type: application/json' -d '${bodyOf(features).replaceAll("'", "'\\''")}'`;

// The features as a JSON text, since true, false and null are not Python.
const python = (url, features) =>
  `import json\n\nimport httpx\n\nfeatures = json.loads(${JSON.stringify(features)})\nprint(httpx.post(${JSON.stringify(url)}, json={"features": features}).raise_for_status().json())\n`;
