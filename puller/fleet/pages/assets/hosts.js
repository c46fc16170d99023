// Filters the list of hosts: all of them are in the page, nothing is asked of a server. What is chosen stands in the address,
// so that it can be sent to others; without this script the list is whole, and the address means nothing.
"use strict";
(() => {
  const AT_ONCE = 250;
  const { columns, rows } = JSON.parse(document.getElementById("hosts-data").textContent);
  const at = Object.fromEntries(columns.map((name, index) => [name, index]));
  const form = document.getElementById("filter");
  const body = document.querySelector("#hosts tbody");
  const said = document.getElementById("count");
  const more = document.getElementById("more");
  const fields = [...form.elements].filter((element) => element.name);
  let shown = AT_ONCE, sort = { column: "host", down: false }, found = rows;

  const states = new Map([...document.querySelectorAll("[data-state]")].map((e) => [e.dataset.state, e.dataset.label]));

  const matches = (row, wanted) =>
    (!wanted.text || row[at.search].includes(wanted.text)) &&
    (!wanted.state || row[at.state] === wanted.state) &&
    (!wanted.os || row[at.os] === wanted.os) &&
    (!wanted.bundle || row[at.bundles].some(([name, version]) =>
      name === wanted.bundle && (!wanted.version || version === wanted.version)));

  const compare = (a, b) => {
    const [x, y] = [a[at[sort.column]], b[at[sort.column]]];
    const order = typeof x === "number" ? x - y : x < y ? -1 : x > y ? 1 : 0;
    return sort.down ? -order : order;
  };

  const cell = (text, className) => {
    const made = document.createElement("td");
    if (className) made.className = className;
    made.textContent = text;
    return made;
  };

  const line = (row) => {
    const made = document.createElement("tr");
    const name = cell("", "name"), link = document.createElement("a"), state = cell("");
    link.href = row[at.page];
    link.textContent = row[at.host];
    name.append(link);
    const word = document.createElement("span");
    word.className = `state ${row[at.state]}`;
    word.textContent = states.get(row[at.state]) || row[at.state];
    state.append(word);
    made.append(name, state, cell(row[at.why]), cell(row[at.bundles].map((pair) => pair.join(" ")).join(", ")),
      cell(row[at.os]), cell(row[at.heard_text], "time"));
    return made;
  };

  const draw = () => {
    body.replaceChildren(...found.slice(0, shown).map(line));
    const all = rows.length;
    said.textContent = found.length === all ? `${all} hosts` : `${found.length} of ${all} hosts`;
    more.hidden = found.length <= shown;
    more.textContent = `Show ${Math.min(AT_ONCE, found.length - shown)} more`;
  };

  const choose = () => {
    const wanted = Object.fromEntries(fields.map((field) => [field.name, field.value]));
    wanted.text = wanted.text.trim().toLowerCase();
    found = rows.filter((row) => matches(row, wanted)).sort(compare);
    shown = AT_ONCE;
    draw();
    const kept = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value));
    try {
      history.replaceState(null, "", kept.size ? `#${kept}` : location.pathname);
    } catch { /* of a file, where an address cannot be set */ }
  };

  const versions = () => {
    const bundle = form.elements.bundle.value, version = form.elements.version, kept = version.value;
    const known = new Set(rows.flatMap((row) => row[at.bundles]).filter(([name]) => name === bundle).map(([, found]) => found));
    version.replaceChildren(new Option("all", ""), ...[...known].sort().map((text) => new Option(text, text)));
    version.value = known.has(kept) ? kept : "";
    version.disabled = !bundle;
  };

  const read = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const field of fields) if (field.name !== "version") field.value = given.get(field.name) || "";
    versions();
    form.elements.version.value = given.get("version") || "";
    choose();
  };

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => { if (event.target.name === "bundle") versions(); choose(); });
  form.addEventListener("reset", () => setTimeout(() => { versions(); choose(); }));
  more.addEventListener("click", () => { shown += AT_ONCE; draw(); });
  for (const button of document.querySelectorAll("#hosts th button")) {
    button.addEventListener("click", () => {
      const column = button.dataset.column;
      sort = { column, down: sort.column === column && !sort.down };
      for (const other of document.querySelectorAll("#hosts th[aria-sort]")) other.removeAttribute("aria-sort");
      button.closest("th").setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      found.sort(compare);
      draw();
    });
  }
  addEventListener("hashchange", read);
  form.hidden = false;
  read();
})();
