// Filters and sorts the list of hosts. The page contains all hosts, so no server is needed. The address contains the
// filters, so that it can be sent to others. Without scripts, the page lists the first hosts.
"use strict";
(() => {
  const AT_ONCE = 250;
  const { columns, rows } = JSON.parse(document.getElementById("hosts-data").textContent);
  const at = Object.fromEntries(columns.map((name, index) => [name, index]));
  const form = document.getElementById("filter");
  const body = document.querySelector("#hosts tbody");
  const status = document.getElementById("count");
  const more = document.getElementById("more");
  const fields = [...form.elements].filter((element) => element.name);
  let shown = AT_ONCE, sort = { column: "host", down: false }, matching = rows;

  const states = new Map([...document.querySelectorAll("[data-state]")].map((e) => [e.dataset.state, e.dataset.label]));

  const matches = (row, filter) =>
    (!filter.text || row[at.search].includes(filter.text)) &&
    (!filter.state || row[at.state] === filter.state) &&
    (!filter.os || row[at.os] === filter.os) &&
    (!filter.bundle || row[at.bundles].some(([name, version]) =>
      name === filter.bundle && (!filter.version || version === filter.version)));

  const compare = (a, b) => {
    const [x, y] = [a[at[sort.column]], b[at[sort.column]]];
    const order = typeof x === "number" ? x - y : x < y ? -1 : x > y ? 1 : 0;
    return sort.down ? -order : order;
  };

  const cell = (text, className) => {
    const element = document.createElement("td");
    if (className) element.className = className;
    element.textContent = text;
    return element;
  };

  const line = (row) => {
    const element = document.createElement("tr");
    const name = cell("", "name"), link = document.createElement("a"), state = cell("");
    link.href = row[at.page];
    link.textContent = row[at.host];
    name.append(link);
    const word = document.createElement("span");
    word.className = `state ${row[at.state]}`;
    word.textContent = states.get(row[at.state]) || row[at.state];
    state.append(word);
    element.append(name, state, cell(row[at.why], "why"), cell(row[at.since_text], "time"),
      cell(row[at.bundles].map((pair) => pair.join(" ")).join(", "), "versions"), cell(row[at.os], "system"), cell(row[at.heard_text], "time"));
    return element;
  };

  const draw = () => {
    body.replaceChildren(...matching.slice(0, shown).map(line));
    const all = rows.length, noun = all === 1 ? "host" : "hosts";
    status.textContent = matching.length === all ? `${all} ${noun}` : `${matching.length} of ${all} ${noun}`;
    more.hidden = matching.length <= shown;
    more.textContent = `Show ${Math.min(AT_ONCE, matching.length - shown)} more`;
  };

  const choose = () => {
    const filter = Object.fromEntries(fields.map((field) => [field.name, field.value]));
    filter.text = filter.text.trim().toLowerCase();
    matching = rows.filter((row) => matches(row, filter)).sort(compare);
    shown = AT_ONCE;
    draw();
    const kept = new URLSearchParams(Object.entries(filter).filter(([, value]) => value));
    try {
      history.replaceState(null, "", kept.size ? `#${kept}` : location.pathname);
    } catch { /* the address of a file cannot be changed */ }
  };

  const versions = () => {
    const bundle = form.elements.bundle.value, field = form.elements.version, selected = field.value;
    const known = new Set(rows.flatMap((row) => row[at.bundles]).filter(([name]) => name === bundle).map(([, version]) => version));
    field.replaceChildren(new Option("all", ""), ...[...known].sort().map((text) => new Option(text, text)));
    field.value = known.has(selected) ? selected : "";
    field.disabled = !bundle;
  };

  const read = () => {
    const address = new URLSearchParams(location.hash.slice(1));
    for (const field of fields) if (field.name !== "version") field.value = address.get(field.name) || "";
    versions();
    form.elements.version.value = address.get("version") || "";
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
      matching.sort(compare);
      draw();
    });
  }
  addEventListener("hashchange", read);
  form.hidden = false;
  read();
})();
