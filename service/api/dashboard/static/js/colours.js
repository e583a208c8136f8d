// A canvas does not know light-dark(): an element that uses the colour has it resolved.
const probes = new Map();

export function resolved(name) {
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
