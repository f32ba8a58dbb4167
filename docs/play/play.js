// The page to play with. It computes nothing but lookups: the outcomes come from docs/play/outcomes.py.
"use strict";

(() => {
  const NAMES = "ABCD";
  const LEVELS = ["WriteSerializable", "Serializable"];
  const root = document.getElementById("play");
  if (!root) return;

  let offered = null; // the operations and the presets
  const tables = {}; // by file name
  const waiting = {};
  let state = null;
  let dragged = null;

  window.refdeltaOffered = (value) => { offered = value; };
  window.refdeltaOutcomes = (value) => {
    tables[value.id] = value;
    (waiting[value.id] || []).forEach((tell) => tell());
    delete waiting[value.id];
  };

  // --- the outcomes ---

  function load(name) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = root.dataset.outcomes + name + ".js";
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${script.src} could not be loaded`));
      document.head.append(script);
    });
  }

  const fileOf = (chosen) => `${chosen.level}-${chosen.table}`;

  function numberOf(id) {
    return offered.operations.findIndex((one) => one.id === id);
  }

  // Whether the table goes on from a version; as _has_children of outcomes.py.
  function goesOn(table, path) {
    const few = path.every((number) => offered.operations[number].amongFour);
    return path.length < Math.min(table.most, few ? 4 : 3);
  }

  // What becomes of the transactions: for each its outcome, and the versions that they make.
  function follow(chosen, table) {
    const width = offered.operations.length;
    const began = {};
    const results = [];
    const path = [];
    const makers = [];
    let node = 0;
    for (const event of chosen.order) {
      const at = NAMES.indexOf(event.toUpperCase());
      if (event === event.toUpperCase()) {
        began[at] = path.length;
        continue;
      }
      const number = numberOf(chosen.operations[at]);
      const row = table.nodes[node];
      const place = 1 + began[at] * width + number;
      const outcome = table.outcomes[row[place]];
      const result = { at, number, began: began[at], passed: [], ...outcome };
      results.push(result);
      if (outcome.kind !== "committed") continue;
      for (let version = began[at] + 1; version <= path.length; version++) result.passed.push(version);
      let child = row[0];
      for (let before = 1; before < place; before++) {
        const other = row[before];
        if (other !== null && table.outcomes[other].kind === "committed" && goesOn(table, [...path, (before - 1) % width])) {
          child++;
        }
      }
      path.push(number);
      makers.push(at);
      result.version = path.length;
      node = child;
    }
    return { results, makers, versions: versionsOf(table, results) };
  }

  // The files of each version.
  function versionsOf(table, results) {
    const start = table.start.map(([name, partition, rows, hidden]) => ({ name, partition, rows, hidden }));
    const versions = [{ files: start.map((file) => ({ ...file, isNew: false, marked: [] })), gone: [] }];
    for (const result of results) {
      if (result.kind !== "committed") continue;
      const before = versions[versions.length - 1].files;
      const vectors = Object.fromEntries(result.vectors);
      const kept = before.filter((file) => !result.gone.includes(file.name)).map((file) => {
        const hidden = vectors[file.name] || file.hidden;
        const marked = hidden.filter((row) => !file.hidden.includes(row));
        return { ...file, hidden, marked, isNew: false };
      });
      const added = result.new.map(([name, partition, rows, hidden]) => (
        { name, partition, rows, hidden, isNew: true, marked: hidden }
      ));
      versions.push({ files: [...kept, ...added], gone: result.gone });
    }
    return versions;
  }

  // --- the address ---

  function parse(text) {
    const given = new URLSearchParams(text.replace(/^#/, ""));
    const known = offered.operations.map((one) => one.id);
    const operations = (given.get("do") || "").split(",").filter((one) => known.includes(one)).slice(0, offered.most);
    if (operations.length < 2) return null;
    const order = (given.get("order") || "").split("");
    const names = NAMES.slice(0, operations.length);
    const wanted = [...names, ...names.toLowerCase()].sort().join("");
    if ([...order].sort().join("") !== wanted) return null;
    if ([...names].some((name) => order.indexOf(name) > order.indexOf(name.toLowerCase()))) return null;
    const level = LEVELS.includes(given.get("level")) ? given.get("level") : LEVELS[0];
    const table = TABLES.some(([id]) => id === given.get("table")) ? given.get("table") : "vectors";
    const chosen = { level, table, operations, order };
    if (operations.length === 4) fit(chosen);
    return chosen;
  }

  function written(chosen) {
    const { level, table, operations, order } = chosen;
    return `level=${level}&table=${table}&do=${operations.join(",")}&order=${order.join("")}`;
  }

  const TABLES = [
    ["files", "plain files"],
    ["vectors", "deletion vectors"],
    ["vectors-files", "deletion vectors, files decide"],
    ["partitions", "partitions"],
    ["partitions-vectors", "partitions, deletion vectors"],
    ["partitions-vectors-rows", "partitions, vectors, rows decide"],
  ];

  // Four transactions have fewer operations to choose from.
  function fit(chosen) {
    const few = offered.operations.filter((one) => one.amongFour).map((one) => one.id);
    chosen.operations = chosen.operations.map((one) => few.includes(one) ? one : few[0]);
  }

  // --- changes ---

  function change(part) {
    state = { ...state, ...part };
    history.replaceState(null, "", `#${written(state)}`);
    show();
  }

  function resize(count) {
    const names = NAMES.slice(0, count);
    const operations = state.operations.slice(0, count);
    const order = state.order.filter((event) => names.includes(event.toUpperCase()));
    while (operations.length < count) {
      const name = NAMES[operations.length];
      operations.push("append");
      order.splice(order.length - 1, 0, name);
      order.push(name.toLowerCase());
    }
    const chosen = { ...state, operations, order };
    if (count === 4) fit(chosen);
    change(chosen);
  }

  // Move an event to a place in the order; one transaction's commit stays after its beginning.
  function moved(event, place) {
    const order = state.order.filter((one) => one !== event);
    const isBegin = event === event.toUpperCase();
    const other = order.indexOf(isBegin ? event.toLowerCase() : event.toUpperCase());
    const least = isBegin ? 0 : other + 1;
    const most = isBegin ? other : order.length;
    order.splice(Math.max(least, Math.min(most, place)), 0, event);
    return order;
  }

  // --- the page ---

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return made;
  }

  window.refdeltaPage = { element, load }; // for suite.js

  const code = (text) => element("code", {}, text);
  const name = (at) => element("span", { class: `play-name play-t${at}` }, NAMES[at]);
  const rowText = ([k, a]) => `(${k}, ${a})`;
  const rowsText = (rows) => rows.map(rowText).join(", ");
  const list = (items) => items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;

  function choice(label, id, options, chosen, tell) {
    const select = element("select", { id, onchange: (event) => tell(event.target.value) });
    for (const [value, text, disabled] of options) {
      select.append(element("option", { value, selected: value === chosen, disabled }, text));
    }
    return element("div", { class: "play-choice" }, element("label", { for: id }, label), select);
  }

  function controls() {
    const preset = offered.presets.find((one) => one.state === written(state));
    const presets = [["", "your own"], ...offered.presets.map((one) => [one.id, one.title])];
    const counts = [2, 3, 4].filter((count) => count <= offered.most).map((count) => [String(count), String(count)]);
    const made = element("div", { class: "play-controls" },
      choice("Example", "play-preset", presets, preset ? preset.id : "", (id) => {
        const found = offered.presets.find((one) => one.id === id);
        if (found) change(parse(found.state));
      }),
      choice("Transactions", "play-count", counts, String(state.operations.length), (count) => resize(Number(count))),
      choice("Isolation level", "play-level", LEVELS.map((one) => [one, one]), state.level, (level) => change({ level })),
      choice("Table", "play-table", TABLES, state.table, (table) => change({ table })),
    );
    const about = element("p", { class: "play-about" });
    if (preset) about.append(preset.text, " ", element("a", { href: preset.page }, "Read more"), ".");
    else if (state.operations.length === 4) about.append("With four transactions, four operations are offered.");
    else about.append("These are choices of your own; the address of the page holds them.");
    return [made, about];
  }

  function timeline(played) {
    const count = state.order.length;
    const left = (place) => `${((place + 0.5) / count) * 100}%`;
    const made = element("div", { class: "play-timeline", role: "group", "aria-label": "Timeline" });
    state.operations.forEach((id, at) => {
      const begin = state.order.indexOf(NAMES[at]);
      const commit = state.order.indexOf(NAMES[at].toLowerCase());
      const result = played && played.results.find((one) => one.at === at);
      const options = offered.operations.map((one) => (
        [one.id, one.sql, state.operations.length === 4 && !one.amongFour]
      ));
      const select = element("select", {
        id: `play-do-${at}`,
        "aria-label": `Operation of ${NAMES[at]}`,
        onchange: (event) => change({ operations: state.operations.map((one, i) => i === at ? event.target.value : one) }),
      }, ...options.map(([value, text, disabled]) => element("option", { value, selected: value === id, disabled }, text)));
      const track = element("div", { class: "play-track" });
      for (let place = 0; place < count; place++) track.append(element("i", { style: `left: ${left(place)}` }));
      const kind = result ? result.kind : "unknown";
      const bar = element("div", { class: `play-bar play-t${at} play-${kind}` });
      bar.style.left = left(begin);
      bar.style.width = `${((commit - begin) / count) * 100}%`;
      track.append(bar, handle(NAMES[at], begin, count, at, null), handle(NAMES[at].toLowerCase(), commit, count, at, result));
      made.append(element("div", { class: "play-row" },
        element("div", { class: "play-what" }, name(at), select), track));
    });
    const axis = element("div", { class: "play-axis", "aria-hidden": "true" });
    state.order.forEach((_, place) => {
      const tick = element("span", {}, `t${place}`);
      tick.style.left = left(place);
      axis.append(tick);
    });
    made.append(element("div", { class: "play-row" }, element("div", { class: "play-what play-hint" }, "drag, or use ← →"), axis));
    return made;
  }

  function handle(event, place, count, at, result) {
    const isBegin = event === event.toUpperCase();
    const sign = isBegin ? "" : !result ? "" : { committed: `v${result.version}`, refused: "✕", nothing: "–" }[result.kind];
    const said = result ? `, ${outcomeWords(result)}` : "";
    const made = element("button", {
      type: "button",
      class: `play-handle play-t${at} ${isBegin ? "play-begin" : `play-commit play-${result ? result.kind : "unknown"}`}`,
      role: "slider",
      "data-event": event,
      "aria-label": `${isBegin ? "Begin" : "Commit"} of ${NAMES[at]}`,
      "aria-valuemin": 0,
      "aria-valuemax": count - 1,
      "aria-valuenow": place,
      "aria-valuetext": `at t${place}${said}`,
      title: `${NAMES[at]} ${isBegin ? "begins" : "commits"} at t${place}${said}`,
      onkeydown: (pressed) => {
        const target = {
          ArrowLeft: place - 1, ArrowDown: place - 1, ArrowRight: place + 1, ArrowUp: place + 1, Home: 0, End: count - 1,
        }[pressed.key];
        if (target === undefined) return;
        pressed.preventDefault();
        change({ order: moved(event, target) });
        root.querySelector(`[data-event="${event}"]`).focus();
      },
      onpointerdown: (pressed) => {
        if (pressed.button > 0) return;
        dragged = { event, track: pressed.target.closest(".play-track").getBoundingClientRect() };
        root.setPointerCapture(pressed.pointerId); // the handle is drawn anew while it is dragged
        document.body.classList.add("play-dragging");
      },
    }, sign);
    made.style.left = `${((place + 0.5) / count) * 100}%`;
    return made;
  }

  window.addEventListener("pointermove", (event) => {
    if (!dragged) return;
    const share = (event.clientX - dragged.track.left) / dragged.track.width;
    const order = moved(dragged.event, Math.floor(share * state.order.length));
    if (order.join("") !== state.order.join("")) {
      change({ order });
      root.querySelector(`[data-event="${dragged.event}"]`).focus();
    }
  });
  for (const ended of ["pointerup", "pointercancel"]) {
    window.addEventListener(ended, () => {
      dragged = null;
      document.body.classList.remove("play-dragging");
    });
  }

  function outcomeWords(result) {
    if (result.kind === "committed") return `commits version ${result.version}`;
    return result.kind === "refused" ? `refused by rule ${result.rule}` : "has nothing to commit";
  }

  function readWords(result) {
    const seen = `version ${result.began}`;
    if (result.moves) return [`Sees ${seen}; moves rows to other files, and changes none.`];
    if (result.reads === null) {
      const blind = result.number === numberOf("append");
      return [blind ? `Reads nothing of ${seen}: a blind append.` : `Reads the metadata of ${seen}.`];
    }
    const found = result.found.length ? `found ${rowsText(result.found)}` : "found no row";
    return [`Reads ${seen} `, code(`WHERE ${result.reads}`), `: ${found}.`];
  }

  function transactions(played) {
    const made = element("div", { class: "play-results" });
    for (const result of played.results) {
      const body = element("div", { class: "play-result", "data-transaction": NAMES[result.at], "data-kind": result.kind });
      const head = {
        committed: `commits version ${result.version}`,
        refused: result.error,
        nothing: "has nothing to commit",
      }[result.kind];
      body.append(element("h4", {}, name(result.at), element("span", {}, " "),
        element("span", { class: `play-verdict play-${result.kind}` }, head)));
      body.append(element("p", {}, code(offered.operations[result.number].sql)));
      body.append(element("p", {}, ...readWords(result)));
      if (result.kind === "committed" && result.passed.length) {
        const winners = list(result.passed.map((version) => `${version} (${NAMES[played.makers[version - 1]]})`));
        body.append(element("p", {}, `Was checked against version ${winners}: no rule fires.`));
      }
      if (result.kind === "refused") body.append(...refusal(result, played));
      made.append(body);
    }
    return made;
  }

  function refusal(result, played) {
    const winner = played.makers[result.winner - 1];
    const parts = [element("p", {}, `Rule ${result.contract} `, code(result.rule), `: ${result.sentence}. The winner is version ${result.winner}, of `, name(winner), ".")];
    const where = [];
    if (result.files.length) where.push(`Files in conflict: ${result.files.join(", ")}.`);
    for (const [file, rows] of result.rows) where.push(`Rows of ${file} at ${list(rows.map(String))}, counted from 0.`);
    for (const why of result.fallbacks) where.push(`Files decided, not rows: ${why}.`);
    if (where.length) parts.push(element("p", {}, where.join(" ")));
    parts.push(element("p", { class: "play-advice" }, result.advice));
    return parts;
  }

  function orders(played) {
    const names = (order, extra) => order.map((version) => NAMES[version > played.makers.length ? extra : played.makers[version - 1]]);
    const made = element("div", { class: "play-orders" });
    const last = played.results.filter((one) => one.kind === "committed").at(-1);
    if (last && last.order) {
      const order = names(last.order).join(", then ");
      const log = names(last.order.map((_, i) => i + 1)).join(", then ");
      const words = played.makers.length < 2 ? `Only ${order} has committed.` : `The result is that of ${order}, one after the other.`;
      const note = order === log ? (played.makers.length < 2 ? "" : " That is the order of the log.")
        : ` The log has another order, ${log}: a reader of a version between them sees a state that this serial order never has.`;
      made.append(element("p", { "data-order": names(last.order).join("") }, element("strong", {}, words), note));
    } else if (!last) made.append(element("p", {}, "Nothing was committed."));
    for (const result of played.results.filter((one) => one.kind === "refused")) {
      const before = played.results.slice(0, played.results.indexOf(result)).filter((one) => one.kind === "committed").length;
      const named = (order) => order.map((version) => NAMES[version === before + 1 ? result.at : played.makers[version - 1]]);
      if (result.order) {
        made.append(element("p", { "data-refused": NAMES[result.at] },
          element("strong", {}, `${NAMES[result.at]} was refused, and need not have been: `),
          `${named(result.order).join(", then ")} would explain the result. The rule decides by files, or is wider than this history needs.`));
        continue;
      }
      made.append(element("p", { "data-refused": NAMES[result.at] },
        element("strong", {}, `Had ${NAMES[result.at]} committed, no serial order would explain the result:`)));
      const items = result.why.map((one) => element("li", {}, `${named(one.order).join(", then ")}: ${whyWords(one, named(one.order).at(-1))}`));
      made.append(element("ul", {}, ...items));
    }
    return made;
  }

  function whyWords(one, last) {
    if (one.end) return "the table would end with other rows.";
    const parts = [];
    if (one.more.length) parts.push(`would find ${rowsText(one.more)}, which it has not seen`);
    if (one.fewer.length) parts.push(`would no longer find ${rowsText(one.fewer)}`);
    return `${last} ${parts.join(", and ") || "would meet other metadata, or rows that were written anew"}.`;
  }

  function versions(played) {
    const made = element("ol", { class: "play-versions" });
    played.versions.forEach((version, number) => {
      const head = element("h4", {}, `version ${number}`);
      if (number) head.append(" by ", name(played.makers[number - 1]));
      const files = version.files.map((file) => {
        const rows = file.rows.map((row, at) => {
          const isHidden = file.hidden.includes(at);
          const classes = ["play-cell", isHidden ? "play-hidden" : "", file.marked.includes(at) ? "play-marked" : ""];
          return element("li", { class: classes.join(" ").trim(), title: isHidden ? "deleted by the deletion vector" : null },
            rowText(row), isHidden ? element("span", { class: "play-said" }, " deleted") : null);
        });
        const partition = file.partition === null ? "" : ` a=${file.partition}`;
        const vector = file.hidden.length ? ` vector {${file.hidden.join(", ")}}` : "";
        return element("div", { class: `play-file${file.isNew ? " play-new" : ""}` },
          element("span", { class: "play-file-name" }, `${file.name}${partition}`),
          file.isNew ? element("span", { class: "play-tag" }, "new") : null,
          element("ul", {}, ...rows), vector ? element("span", { class: "play-vector" }, vector) : null);
      });
      const gone = version.gone.length ? [element("p", { class: "play-gone" }, `removed: ${version.gone.join(", ")}`)] : [];
      made.append(element("li", { class: number ? `play-version play-t${played.makers[number - 1]}` : "play-version" },
        head, ...files, ...gone));
    });
    return made;
  }

  function summary(played) {
    return played.results.map((result) => `${NAMES[result.at]} ${outcomeWords(result)}`).join("; ");
  }

  async function show() {
    const wanted = fileOf(state);
    const focused = document.activeElement && root.contains(document.activeElement) ? document.activeElement.id : "";
    if (!tables[wanted]) {
      root.setAttribute("aria-busy", "true");
      await load(wanted);
      if (fileOf(state) !== wanted) return;
    }
    const played = follow(state, tables[wanted]);
    const summed = element("p", { class: "play-summary", role: "status" }, `${summary(played)}.`);
    root.replaceChildren(
      ...controls(), timeline(played), summed,
      element("h3", {}, "Transactions, in the order of their commits"), transactions(played),
      element("h3", {}, "Serial order"), orders(played),
      element("h3", {}, "Versions and files"), versions(played),
    );
    root.setAttribute("aria-busy", "false");
    if (focused) document.getElementById(focused)?.focus();
    window.refdeltaPlayed = { state: written(state), results: played.results, versions: played.versions };
  }

  // For tests: what becomes of the choices of an address.
  window.refdeltaFollow = async (address) => {
    const chosen = parse(address);
    if (!tables[fileOf(chosen)]) await load(fileOf(chosen));
    return follow(chosen, tables[fileOf(chosen)]);
  };

  async function start() {
    await load("offered");
    state = parse(location.hash) || parse(offered.presets[0].state);
    window.addEventListener("hashchange", () => {
      const chosen = parse(location.hash);
      if (chosen && written(chosen) !== written(state)) {
        state = chosen;
        show();
      }
    });
    await show();
  }

  start().catch((error) => {
    root.replaceChildren(element("p", { class: "play-error", role: "alert" }, `The outcomes cannot be shown: ${error.message}.`));
  });
})();
