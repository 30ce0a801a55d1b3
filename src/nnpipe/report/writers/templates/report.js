"use strict";
const FILTERED = 8; // rows from which on a table can be filtered

prepare(document);
addEventListener("hashchange", openTarget);
addEventListener("resize", fitAll);
openTarget();

function prepare(root) {
  for (const table of root.querySelectorAll("table.sortable")) {
    makeSortable(table);
    if (table.tBodies[0].rows.length >= FILTERED) addFilter(table);
  }
  for (const table of root.querySelectorAll("table")) {
    if (table.tHead.querySelector(".minor")) addSwitch(table);
  }
  for (const part of root.querySelectorAll("details.part")) {
    part.addEventListener("toggle", () => part.open && unpack(part));
  }
}

// What nobody has opened yet is packed text; its elements are made when it is opened.
async function unpack(part) {
  const packed = part.querySelector(":scope > template.packed");
  if (!packed || typeof DecompressionStream === "undefined") return;
  const bytes = Uint8Array.from(atob(packed.content.textContent.trim()), (letter) => letter.charCodeAt(0));
  packed.remove();
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const made = document.createElement("div");
  made.innerHTML = await new Response(stream).text();
  part.querySelector(":scope > .made").replaceWith(made);
  prepare(made);
}

// A link that leads to a folded part opens it, and whatever it lies in.
function openTarget() {
  let place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; place; place = place.parentElement) if (place.localName === "details") place.open = true;
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

// Where a table is wider than the page, it leaves some columns out until asked for them.
function addSwitch(table) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "columns";
  button.addEventListener("click", () => {
    table.dataset.asked = "yes";
    show(table, button, !table.classList.contains("less"));
  });
  toolsOf(table).append(button);
  table.fit = () => {
    if (table.dataset.asked) return;
    show(table, button, false);
    const scroll = table.closest(".scroll");
    const wide = scroll.clientWidth > 0 && table.scrollWidth > scroll.clientWidth + 1;
    if (wide) show(table, button, true);
    button.hidden = !wide;
  };
  table.fit();
  table.closest("details")?.addEventListener("toggle", table.fit);
}

function show(table, button, less) {
  table.classList.toggle("less", less);
  button.textContent = less ? "Show all columns" : "Show fewer columns";
  button.setAttribute("aria-expanded", String(!less));
}

function fitAll() {
  for (const table of document.querySelectorAll("table")) table.fit?.();
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

// A fold would hide its table on paper; what is packed is too much for it, unless it has been opened.
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) {
    if (!fold.querySelector(":scope > template.packed")) fold.open = true;
  }
});
