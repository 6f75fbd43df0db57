// Shows changes as they happen. Without this script the page still works, and is as old as its last loading.
"use strict";
const at = id => document.getElementById(id);

const replace = (box, html) => {
  const open = [...box.querySelectorAll("details[id]")].map(part => [part.id, part.open]);
  const focused = box.contains(document.activeElement) ? document.activeElement : null;
  const target = focused && { id: focused.id, href: focused.getAttribute("href"), label: focused.getAttribute("aria-label") };
  const detail = focused && focused.tagName === "SUMMARY" ? focused.parentElement.id : null;
  const scrolled = [...box.querySelectorAll(".scroll")].map(part => [part.scrollLeft, part.scrollTop]);
  box.innerHTML = html;
  box.hidden = html === "";
  for (const [id, was] of open) if (at(id)) at(id).open = was;
  box.querySelectorAll(".scroll").forEach((part, i) => { if (scrolled[i]) [part.scrollLeft, part.scrollTop] = scrolled[i]; });
  if (!target) return;
  const same = [...box.querySelectorAll("a, button, input, [tabindex]")].find(part =>
    target.id ? part.id === target.id : target.href ? part.getAttribute("href") === target.href : part.getAttribute("aria-label") === target.label);
  const found = detail && at(detail) ? at(detail).querySelector("summary") : same;
  (found || at("main")).focus({ preventScroll: true });
};

const stream = new EventSource("events");
stream.onopen = () => { at("lost").hidden = true; at("lost").textContent = ""; };
stream.onerror = () => { at("lost").hidden = false; at("lost").textContent = at("lost").dataset.text; };
stream.onmessage = event => {
  const update = JSON.parse(event.data);
  document.title = update.title;
  if (at("where").innerHTML !== update.where) at("where").innerHTML = update.where;
  for (const [name, [mark, html]] of Object.entries(update.sections)) {
    const box = at(name);
    if (box.dataset.v === mark) continue;
    replace(box, html);
    box.dataset.v = mark;
  }
  if (update.changes) at("changes").textContent = update.changes;
};
addEventListener("pagehide", () => stream.close());
