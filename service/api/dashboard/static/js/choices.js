// The selected model, window and source: in the address, so that a link leads to the same view.
const DEFAULTS = { model: "", view: "", window: "1h", source: "" };

export function chosen() {
  const given = new URLSearchParams(location.search);
  return Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, given.get(name) ?? value]));
}

export function choose(changes) {
  const address = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === DEFAULTS[name]) address.searchParams.delete(name);
    else address.searchParams.set(name, value);
  }
  history.pushState(null, "", address);
}

// `said` gives the text of a name where that is not the name itself.
export function fillSelect(select, names, current, said = {}) {
  const all = names.includes(current) || !current ? names : [current, ...names];
  const options = all.map((name) => new Option(said[name] ?? name, name));
  const key = (options) => options.map((option) => `${option.value}\n${option.text}`).join();
  if (key([...select.options]) !== key(options)) select.replaceChildren(...options);
  select.value = current;
}
