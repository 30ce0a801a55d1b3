"use strict";
// Tables whose columns have an order: a click on a heading sorts, another turns round.
for (const table of document.querySelectorAll("table.sortable")) {
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
  return text === "–" || text.startsWith("–") ? null : text;
}

// What is not known stands last, whichever way the rest goes.
function compare(one, two, ascending) {
  if (one === null || two === null) return (one === null) - (two === null);
  const order = typeof one === "number" && typeof two === "number"
    ? one - two
    : String(one).localeCompare(String(two), undefined, { numeric: true });
  return ascending ? order : -order;
}

// A fold would hide its table on paper.
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
});
