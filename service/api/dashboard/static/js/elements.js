// An element of that tag with a text or children, and properties.
export function element(tag, content = "", properties = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...(Array.isArray(content) ? content : [content]));
  return made;
}

// The same of a drawing, with attributes.
export function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A row of a table whose cells know their column, for narrow screens where each row is a card.
export function row(head, cells) {
  const line = document.createElement("tr");
  line.append(element("th", head, { scope: "row" }));
  for (const [column, content] of cells) {
    const cell = element("td", content);
    cell.dataset.column = column;
    line.append(cell);
  }
  return line;
}

const MARKS = { good: ["✓", "good:"], watch: ["!", "attention:"], bad: ["✕", "bad:"], none: ["–", "not known:"] };

// The mark of a level, with its name for those who do not see it.
export function markOf(level) {
  const [mark, name] = MARKS[level];
  return element("span", mark, { className: "mark", role: "img", ariaLabel: name });
}

export function write(place, text) {
  if (place.textContent !== text) place.textContent = text;
}
