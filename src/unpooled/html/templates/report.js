// The page can be read without this script. It adds: sorting of tables by a click, a CSV file of every table, an SVG file of every figure.
"use strict";
const number = text => parseFloat(text.replaceAll(",", ""));
// as in spreadsheet.py: a quote precedes a cell that begins like a formula and is not a number
const formula = /^[\s'"]*[=+\-@\uff1d\uff0b\uff0d\uff20]/;
const amount = /^[+-]?([\d.,]*\d[\d.,]*(e[+-]?\d+)?%?|inf|nan)$/i;
const content = cell => (cell.dataset.v ?? cell.textContent).trim();
const save = (name, type, text) => {
  const link = document.createElement("a");
  link.download = name;
  link.href = `data:${type};charset=utf-8,` + encodeURIComponent(text);
  link.click();
};
const button = (after, label, action) => {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = label;
  made.onclick = action;
  after.insertAdjacentElement("afterend", made);
};
const name = (node, ending) => (node.closest("section").id || "page") + "-" + ending;

document.querySelectorAll("table").forEach((table, t) => {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, j) => {
    head.tabIndex = 0;
    head.onclick = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      [...table.tHead.rows[0].cells].forEach(cell => cell.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [content(a.cells[j]), content(b.cells[j])];
        const [m, n] = [number(x), number(y)];
        if (isNaN(m) !== isNaN(n)) return isNaN(m) - isNaN(n);
        const order = isNaN(m) ? x.localeCompare(y, "en", { numeric: true }) : m - n;
        return down ? -order : order;
      });
      body.append(...rows);
    };
    head.onkeydown = event => { if (event.key === "Enter") head.onclick(); };
  });
  const flat = text => text.replace(/\s+/g, " ").replace(/(\d),(?=\d{3}\b)/g, "$1");
  const plain = text => formula.test(text) && !amount.test(text) ? "'" + text : text;
  const quoted = cell => '"' + plain(flat(content(cell))).replaceAll('"', '""') + '"';
  const lines = () => [...table.rows].map(row => [...row.cells].map(quoted).join(",")).join("\r\n");
  button(table.parentElement, "CSV", () => save(name(table, `${t + 1}.csv`), "text/csv", lines() + "\r\n"));
});

const properties = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "paint-order", "font", "text-anchor"];
document.querySelectorAll("main svg").forEach((drawn, s) => button(drawn, "SVG", () => {
  const clone = drawn.cloneNode(true);
  const [theirs, ours] = [drawn, clone].map(svg => [...svg.querySelectorAll("*")]);
  theirs.forEach((node, i) => {
    const style = getComputedStyle(node);
    ours[i].setAttribute("style", properties.map(key => `${key}:${style.getPropertyValue(key)}`).join(";"));
  });
  clone.setAttribute("style", "background:" + getComputedStyle(drawn.closest("section")).backgroundColor);
  save(name(drawn, `${s + 1}.svg`), "image/svg+xml", new XMLSerializer().serializeToString(clone));
}));
