"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  const memory = {
    get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("theme", value); } catch { /* a browser may refuse to remember */ } },
  };
  const THEMES = ["auto", "light", "dark"];
  const wear = (theme) => {
    if (theme === "auto") { delete root.dataset.theme; } else { root.dataset.theme = theme; }
    for (const button of document.querySelectorAll("[data-theme-toggle]")) { button.textContent = `Theme: ${theme}`; }
  };
  let theme = THEMES.includes(memory.get()) ? memory.get() : "auto";
  wear(theme);

  const say = (text) => { document.querySelector("[data-said]").textContent = text; };

  const copy = async (text, button) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    const before = button.textContent;
    if (before !== "Copied") {
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = before; }, 1200);
    }
    say("Copied");
  };

  const save = (text, name) => {
    const address = URL.createObjectURL(new Blob([text], { type: "text/x-python" }));
    const link = Object.assign(document.createElement("a"), { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };

  const text = (id) => document.getElementById(id).textContent;

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) { return; }
    const { copy: command, copyOf, saveOf, name, themeToggle } = button.dataset;
    if (command !== undefined) { copy(button.previousElementSibling.textContent, button); }
    if (copyOf !== undefined) { copy(text(copyOf), button); }
    if (saveOf !== undefined) { save(text(saveOf), name); }
    if (themeToggle !== undefined) {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      memory.set(theme);
      wear(theme);
    }
  });

  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) { return; }
    for (let fold = target.closest("details:not([open])"); fold; fold = fold.parentElement.closest("details:not([open])")) {
      fold.open = true;
    }
  };

  const filter = (form) => {
    const words = form.querySelector("[data-words]");
    const kind = form.querySelector("[data-kind]");
    const standing = form.querySelector("[data-standing]");
    const shown = form.querySelector("[data-shown]");
    const groups = [...document.querySelectorAll("[data-list] .group")].map((group) => ({
      group,
      rows: [...group.querySelectorAll("li")].map((row) => ({
        row,
        kind: row.dataset.kind,
        standing: row.dataset.standing,
        text: `${group.dataset.key} ${row.dataset.kind} ${row.textContent}`.toLowerCase(),
      })),
    }));
    const total = groups.reduce((sum, each) => sum + each.rows.length, 0);
    const apply = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      for (const each of groups) {
        let visible = 0;
        for (const one of each.rows) {
          const fits = !kind.value || kind.value === one.kind;
          const state = !standing.value || standing.value === one.standing;
          one.row.hidden = !(fits && state && wanted.every((word) => one.text.includes(word)));
          visible += one.row.hidden ? 0 : 1;
        }
        each.group.hidden = visible === 0;
        left += visible;
      }
      shown.textContent = `${left} of ${total} shown`;
      document.querySelector("[data-none]").hidden = left > 0;
    };
    for (const kind of ["input", "change"]) { form.addEventListener(kind, apply); }
    form.addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest("input, select, textarea");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        words.focus();
      }
    });
    apply();
  };

  document.addEventListener("DOMContentLoaded", () => {
    wear(theme);
    for (const form of document.querySelectorAll("[data-filter]")) { filter(form); }
    reveal();
  });
  addEventListener("hashchange", reveal);
})();
