// The cases of the conformance suite on the page to play with; docs/play/suite.py has the judge's answers.
"use strict";

(() => {
  const root = document.getElementById("suite");
  if (!root || !window.refdeltaPage) return;
  const { element, load } = window.refdeltaPage;
  const code = (text) => element("code", {}, text);
  let cases = null;
  window.refdeltaCases = (value) => { cases = value; };

  // The address holds NAME@LEVEL, or NAME: then the first of its levels.
  function asked() {
    const given = new URLSearchParams(location.hash.replace(/^#/, "")).get("case");
    return given && cases.find((one) => one.id === given || one.name === given);
  }

  const colour = (chosen, name) => `play-t${Math.max(0, chosen.transactions.findIndex((one) => one.name === name)) % 4}`;
  const named = (chosen, name) => element("span", { class: `play-name ${colour(chosen, name)}` }, name);

  function choose(id) {
    history.replaceState(null, "", `#case=${id}`);
    show(cases.find((one) => one.id === id));
    document.getElementById("suite-case").focus();
  }

  function controls(chosen) {
    const groups = new Map();
    for (const one of cases) {
      if (!groups.has(one.group)) groups.set(one.group, new Map());
      if (!groups.get(one.group).has(one.name)) groups.get(one.group).set(one.name, one.id);
    }
    const select = element("select", { id: "suite-case", onchange: (event) => choose(event.target.value) });
    for (const [group, names] of groups) {
      const some = [...names].map(([name, id]) => (
        element("option", { value: name === chosen.name ? chosen.id : id, selected: name === chosen.name }, name)
      ));
      select.append(element("optgroup", { label: group }, ...some));
    }
    const levels = cases.filter((one) => one.name === chosen.name);
    const level = element("select", { id: "suite-level", onchange: (event) => choose(event.target.value) },
      ...levels.map((one) => element("option", { value: one.id, selected: one === chosen }, one.level)));
    return element("div", { class: "play-controls suite-controls" },
      element("div", { class: "play-choice" }, element("label", { for: "suite-case" }, "Case"), select),
      element("div", { class: "play-choice" }, element("label", { for: "suite-level" }, "Isolation level"), level));
  }

  function timeline(chosen) {
    const count = chosen.steps.length;
    const left = (place) => `${((place + 0.5) / count) * 100}%`;
    const made = element("div", { class: "play-timeline", role: "group", "aria-label": "Schedule" });
    for (const { name } of chosen.transactions) {
      const [begin, commit] = ["begin", "commit"].map((verb) => chosen.steps.findIndex((step) => step[0] === verb && step[1] === name));
      const track = element("div", { class: "play-track" });
      for (let place = 0; place < count; place++) track.append(element("i", { style: `left: ${left(place)}` }));
      const bar = element("div", { class: `play-bar ${colour(chosen, name)}` });
      bar.style.left = left(begin);
      bar.style.width = `${((commit - begin) / count) * 100}%`;
      track.append(bar);
      for (const [verb, place] of [["begin", begin], ["commit", commit]]) {
        const said = `${name} ${verb}s at t${place}`;
        const sign = element("span", { class: `play-handle play-${verb} ${colour(chosen, name)} suite-step`, role: "img", "aria-label": said, title: said });
        sign.style.left = left(place);
        track.append(sign);
      }
      made.append(element("div", { class: "play-row suite-row" }, named(chosen, name), track));
    }
    const axis = element("div", { class: "play-axis", "aria-hidden": "true" });
    for (let place = 0; place < count; place++) {
      const tick = element("span", {}, `t${place}`);
      tick.style.left = left(place);
      axis.append(tick);
    }
    made.append(element("div", { class: "play-row suite-row" }, element("span"), axis));
    return made;
  }

  function table(chosen) {
    const made = element("ul", { class: "suite-files" });
    for (const file of chosen.files) {
      made.append(element("li", {}, code(typeof file === "string" ? file : rowsText(file))));
    }
    const more = Object.entries(chosen.table).map(([key, value]) => element("li", {}, `${key.replaceAll("_", " ")}: `, code(JSON.stringify(value))));
    if (!chosen.files.length && !more.length) return element("p", {}, "The table has no rows, or does not exist yet.");
    made.append(...more);
    return made;
  }

  function transactions(chosen) {
    const made = element("div", { class: "play-results" });
    for (const one of chosen.transactions) {
      const verdict = chosen.verdicts[one.name];
      const kind = verdict === "must conflict" ? "refused" : verdict === "must commit" ? "committed" : "nothing";
      const body = element("div", { class: "play-result", "data-transaction": one.name, "data-kind": kind },
        element("h4", {}, named(chosen, one.name), " ",
          element("span", { class: `play-verdict play-${kind}` }, verdict === "either" ? "may commit or conflict" : verdict)));
      for (const words of one.reads) body.append(element("p", {}, "reads ", code(words)));
      for (const words of one.does) body.append(element("p", {}, code(words)));
      made.append(body);
    }
    return made;
  }

  function explained(chosen) {
    const made = element("div", { class: "play-orders" });
    if (chosen.order) {
      const order = chosen.order.join(", then ") || "only readers";
      made.append(element("p", { "data-order": chosen.order.join(" ") },
        element("strong", {}, `If all commit, the result is that of ${order}`), ", one after the other."));
    } else {
      made.append(element("p", { "data-cycle": chosen.cycle.map((edge) => edge.before).join(" ") },
        element("strong", {}, "If all commit with what they saw, no serial order explains it"), chosen.cycle.length ? ":" : "."));
      made.append(element("ul", {}, ...chosen.cycle.map((edge) => (
        element("li", {}, named(chosen, edge.before), " before ", named(chosen, edge.after), `: ${edge.because}.`)
      ))));
    }
    if (chosen.spark) made.append(element("p", {}, "delta-spark's conflict checker, as recorded: ", code(chosen.spark), "."));
    return made;
  }

  const rowsText = (rows) => Array.isArray(rows)
    ? rows.map((row) => `(${row.map((value) => value === null ? "null" : value).join(", ")})`).join(" ")
    : Object.entries(rows).map(([file, some]) => `${file}: ${some}`).join("; ");

  function outcomes(chosen) {
    const body = element("tbody");
    for (const one of chosen.outcomes) {
      body.append(element("tr", {}, element("td", {}, one.committed.join(", ") || "none"),
        element("td", {}, one.orders.map((order) => order.join(" → ") || "–").join("; ")),
        element("td", {}, code(rowsText(one.rows) || "no rows"))));
    }
    const head = element("tr", {}, ...["committed", "serial orders", "rows that are left"].map((text) => element("th", {}, text)));
    return element("div", { class: "suite-scroll" }, element("table", {}, element("thead", {}, head), body));
  }

  function show(chosen) {
    root.replaceChildren(controls(chosen),
      element("p", { class: "play-about" }, [chosen.about, chosen.clause].filter(Boolean).join(" ") || `A case of ${chosen.kind}.`),
      element("h3", {}, "Table"), table(chosen),
      element("h3", {}, "Schedule"), timeline(chosen), transactions(chosen),
      element("h3", {}, "Serial order or cycle"), explained(chosen),
      element("h3", {}, "Outcomes that are right"), outcomes(chosen),
      element("p", {}, code(`refdelta conformance --engine NAME --case ${chosen.id}`)));
    root.setAttribute("aria-busy", "false");
    window.refdeltaCase = chosen;
  }

  async function start() {
    await load("cases");
    const wanted = asked();
    show(wanted || cases.find((one) => one.name === "lost-update"));
    const jump = () => document.getElementById("cases-of-the-conformance-suite").scrollIntoView();
    if (wanted) jump();
    window.addEventListener("hashchange", () => {
      const other = asked();
      if (other) { show(other); jump(); }
    });
  }

  start().catch((error) => {
    root.replaceChildren(element("p", { class: "play-error", role: "alert" }, `The cases cannot be shown: ${error.message}.`));
  });
})();
