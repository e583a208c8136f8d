// Which view is shown: all models, or one of them.
import { choose, chosen, fillSelect } from "./choices.js";
import { WINDOWS } from "./history.js";
import * as model from "./model.js";
import { Overview } from "./overview.js";

const RETRY_MS = 3000;

const $ = (id) => document.getElementById(id);
const overview = new Overview($("overview"), listed);

let choice = chosen();
let current = ""; // the model that is followed
let names = [];

// Shows what the address says; without a model in it, what `listed` finds.
function show() {
  choice = chosen();
  if (!WINDOWS.includes(choice.window)) choice.window = "1h";
  if (choice.model && choice.model === current) model.choose(choice);
  else if (choice.model) open(choice.model);
  else if (choice.view === "all") view("all");
  else overview.read();
}

function view(name) {
  document.body.dataset.view = name;
  overview.show(name === "all");
  $("choose").hidden = name !== "choose";
  $("all-models").toggleAttribute("aria-current", name === "all");
  if (name !== "model") {
    current = "";
    model.watch("", choice, () => {});
    document.title = "All models · ftrl";
  }
}

function open(name) {
  view("model");
  current = name;
  fillNames(names, {}, name);
  if (!names.length) overview.read();
  model.watch(name, choice, (all, aliases) => {
    names = all;
    fillNames(all, aliases, name);
  });
}

function fillNames(all, aliases, current) {
  const said = Object.fromEntries(Object.entries(aliases).map(([alias, means]) => [alias, `${alias} (now ${means})`]));
  fillSelect($("model"), [...all, ...Object.keys(aliases)], current, said);
}

// What a reading of all models found: the only one that has learned is opened unless all were asked for.
function listed({ ok, status, content, detail }) {
  if (ok) names = [...content.models.map((one) => one.model), ...content.left_out].sort();
  if (current) {
    if (ok) fillNames(names, {}, current);
    return;
  }
  if (!ok) {
    refused(status, detail);
    return;
  }
  const learned = content.models.filter((one) => one.t > 0);
  const only = content.left_out.length ? null : learned.length === 1 ? learned[0] : names.length === 1 ? content.models[0] : null;
  if (only && choice.view !== "all") {
    open(only.model);
  } else if (document.body.dataset.view !== "all") {
    view("all");
  }
}

// A list that is shown stays, with a note that it is old.
function refused(status, detail) {
  if (document.body.dataset.view === "all" && status !== 403) return;
  const [title, why] =
    status === 403
      ? ["Which model?", "Your token is for some models only, so that they cannot all be shown. Name one of them."]
      : ["The models are not known", `${detail.replace(/\.?$/, ".")} Trying again; or name a model.`];
  $("choose-title").textContent = title;
  $("choose-why").textContent = why;
  view("choose");
  if (status !== 403) setTimeout(() => current || overview.read(), RETRY_MS);
}

$("model").addEventListener("change", (event) => {
  choose({ model: event.target.value, view: "" });
  show();
});
for (const [group, name] of [["windows", "window"], ["sources", "source"]]) {
  $(group).addEventListener("change", (event) => {
    choice[name] = event.target.value;
    choose({ [name]: event.target.value });
    model.choose({ [name]: event.target.value });
  });
}
$("choose").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  choose({ model: $("choose-name").value, view: "" });
  show();
});
addEventListener("popstate", show);
addEventListener("pagehide", model.keep);
addEventListener("resize", model.render);
setInterval(model.render, 1000);
show();
