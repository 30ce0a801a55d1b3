"use strict";
const FILTERED = 8; // rows from which on a table can be filtered

for (const table of document.querySelectorAll("table.sortable")) {
  makeSortable(table);
  if (table.tBodies[0].rows.length >= FILTERED) addFilter(table);
}
for (const table of document.querySelectorAll("table")) {
  if (table.tHead.querySelector(".minor")) addSwitch(table);
}

// A click on a heading sorts by its column, another turns the order round.
function makeSortable(table) {
  const headings = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const before = heading.getAttribute("aria-sort");
      const ascending = before ? before !== "ascending" : true;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [row, key(row.cells[column])]);
      rows.sort(([, one], [, two]) => compare(one, two, ascending));
      body.append(...rows.map(([row]) => row));
    });
  });
}

function key(cell) {
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const text = cell.textContent.trim();
  return text === "" || text.startsWith("–") ? null : text;
}

// What is not known stands last, whichever way the rest goes.
function compare(one, two, ascending) {
  if (one === null || two === null) return (one === null) - (two === null);
  const order = typeof one === "number" && typeof two === "number"
    ? one - two
    : String(one).localeCompare(String(two), undefined, { numeric: true });
  return ascending ? order : -order;
}

// A field above a table: only rows that hold all of its words are shown.
function addFilter(table) {
  const rows = [...table.tBodies[0].rows].map((row) => {
    const texts = [...row.cells].flatMap((cell) => [...cell.childNodes].map((node) => node.textContent));
    return [row, (row.textContent + " " + texts.join(" ")).toLowerCase()];
  });
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Filter rows";
  field.setAttribute("aria-label", "Show only rows that hold all of these words");
  const told = document.createElement("output");
  const apply = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, text] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    told.textContent = `${shown} of ${rows.length}`;
  };
  field.addEventListener("input", apply);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    field.value = "";
    apply();
  });
  apply();
  toolsOf(table).prepend(field, told);
}

// Narrow screens leave some columns out until asked for them.
function addSwitch(table) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "columns";
  const set = (less) => {
    table.classList.toggle("less", less);
    button.textContent = less ? "Show all columns" : "Show fewer columns";
    button.setAttribute("aria-expanded", String(!less));
  };
  button.addEventListener("click", () => set(!table.classList.contains("less")));
  set(true);
  toolsOf(table).append(button);
}

function toolsOf(table) {
  const scroll = table.closest(".scroll");
  const before = scroll.previousElementSibling;
  if (before && before.classList.contains("tools")) return before;
  const tools = document.createElement("div");
  tools.className = "tools";
  scroll.before(tools);
  return tools;
}

// A fold would hide its table on paper.
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
});
