"""How a page looks, on a screen and on paper, and the small script that sorts and filters one table."""

from __future__ import annotations

import base64
import hashlib

__all__ = ["SCRIPT", "STILL", "STYLE", "policy"]

STILL = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # of a page without a script

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1b1f;--soft:#4d4d57;--line:#b9b9c4;--tint:#f2f3f7;--link:#0b57a4;
--good:#0a6b3d;--bad:#b3261e;--open:#7a4d00}
@media (prefers-color-scheme:dark){:root{--paper:#16171c;--ink:#ececf1;--soft:#b9bac6;--line:#4b4d5a;--tint:#22242c;
--link:#8ec2ff;--good:#6fdca4;--bad:#ff9d94;--open:#f2c26b}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem 1.25rem 4rem;max-width:70rem;background:var(--paper);color:var(--ink);
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
h1{font-size:1.8rem;line-height:1.2;overflow-wrap:anywhere}
h2{font-size:1.3rem;margin-top:2.5rem;padding-top:.5rem;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin-top:1.5rem}
a{color:var(--link)}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;padding:0;list-style:none}
.skip{position:absolute;left:-99rem}.skip:focus{position:static}
.wide{overflow-x:auto;max-width:100%;margin:.75rem 0}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;font-size:.92rem}
caption{text-align:left;font-weight:600;padding:.3rem 0}
thead th{border-bottom:2px solid var(--line);text-align:left;white-space:nowrap}
th,td{padding:.3rem .9rem .3rem 0;vertical-align:top;text-align:left;overflow-wrap:break-word}
tbody tr{border-bottom:1px solid var(--line)}
tbody th{font-weight:500}
td{font-variant-numeric:tabular-nums}
#verdict-table{width:100%}#verdict-table td{white-space:nowrap}
#verdict-table th:first-child{width:100%;min-width:min(20rem,60vw);overflow-wrap:anywhere}
#verdict-table details{margin:0}#verdict-table details>:not(summary){font-weight:400;margin:.3rem 0 .3rem 1rem}
.verdict{font-weight:700}.holds{color:var(--good)}.violated{color:var(--bad)}.inconclusive{color:var(--open)}
.absent{color:var(--soft);font-style:italic}
pre{background:var(--tint);padding:.7rem .9rem;overflow-x:auto;font-size:.88rem;border-radius:4px}
summary{cursor:pointer;color:var(--link)}
details{margin:.35rem 0}dt{font-weight:600}dd{margin:0 0 .5rem 1rem}
figure{margin:1rem 0}figcaption{color:var(--soft);font-size:.92rem}
figure svg{max-width:100%;height:auto;background:#fff;border:1px solid var(--line);border-radius:4px}
svg *{stroke-linejoin:round;stroke-linecap:butt}
math{font-size:1.08em}math[display=block]{width:max-content;margin:0}mtable,mtd{math-style:normal}mtext{white-space:pre}
.mono{font-family:ui-monospace,monospace}
mtable.aligned mtd{text-align:left;padding:.45em .2em}
mtable.aligned mtd:first-child{text-align:right;white-space:nowrap}
mtable.cases mtd{text-align:left}
#verdict-tools{display:flex;flex-wrap:wrap;gap:.4rem 1rem;align-items:center}
#verdict-tools:empty{display:none}
input,select,button{font:inherit;color:inherit;background:var(--tint);border:1px solid var(--line);border-radius:4px;
padding:.2rem .5rem}
th button{border:0;background:none;padding:0;font-weight:700;cursor:pointer}
tr[hidden]{display:none}
@media print{:root{color-scheme:light;--paper:#fff;--ink:#000;--soft:#333;--line:#999;--tint:#f4f4f4;--link:#000;
--good:#000;--bad:#000;--open:#000}
body{max-width:none;padding:0;font-size:10pt}nav,.skip,#verdict-tools{display:none}
h2,h3,caption{break-after:avoid}tr,figure{break-inside:avoid}thead{display:table-header-group}
.wide,pre{overflow:visible}pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:8pt;padding:.3em .6em}
h2{margin-top:1.2em}math{font-size:.8em}table{font-size:8pt}th,td{padding:.15em .6em .15em 0;overflow-wrap:anywhere}
thead th{overflow-wrap:normal}table{break-inside:avoid}#verdict-table{break-inside:auto}
dl{font-size:8pt}dt{float:left;margin-right:.5em}dd{margin:0 0 .2em}
figure svg{max-width:12cm}details{margin:.15em 0}summary{list-style:none}
@page{margin:1.6cm}}
"""

SCRIPT = """
(function () {
  "use strict";
  var table = document.getElementById("verdict-table"), tools = document.getElementById("verdict-tools");
  if (!table || !tools) { return; }
  var body = table.tBodies[0], rows = Array.prototype.slice.call(body.rows);
  function make(name, parent, text) {
    var made = document.createElement(name);
    if (text) { made.textContent = text; }
    parent.appendChild(made);
    return made;
  }
  function cell(row, k) { return row.cells[k].textContent.trim(); }
  var words = make("label", tools, "Find "), find = make("input", words);
  find.type = "search";
  var kinds = make("label", tools, "Verdict "), choose = make("select", kinds);
  make("option", choose, "all");
  rows.map(function (row) { return cell(row, 1); }).filter(function (name, k, all) { return all.indexOf(name) === k; })
    .sort().forEach(function (name) { make("option", choose, name); });
  var told = make("span", tools);
  told.setAttribute("role", "status");
  function filter() {
    var word = find.value.toLowerCase(), kind = choose.value, shown = 0;
    rows.forEach(function (row) {
      var fits = (kind === "all" || cell(row, 1) === kind) && row.textContent.toLowerCase().indexOf(word) >= 0;
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    });
    told.textContent = shown + " of " + rows.length + " shown";
  }
  find.addEventListener("input", filter);
  choose.addEventListener("change", filter);
  Array.prototype.slice.call(table.tHead.rows[0].cells, 0, 6).forEach(function (head, k) {
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.textContent = "";
    head.appendChild(button);
    button.addEventListener("click", function () {
      var up = head.getAttribute("aria-sort") !== "ascending";
      Array.prototype.forEach.call(table.tHead.rows[0].cells, function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      rows.sort(function (a, b) {
        var s = cell(a, k), t = cell(b, k), x = parseFloat(s), y = parseFloat(t);
        if (s === "" || t === "") { return (s === "") - (t === ""); }
        var order = k > 1 && k < 5 && !isNaN(x) && !isNaN(y) ? x - y : s.localeCompare(t);
        return up ? order : -order;
      }).forEach(function (row) { body.appendChild(row); });
    });
  });
  var every = make("button", tools, "Open all");
  every.type = "button";
  every.addEventListener("click", function () {
    var open = every.textContent === "Open all";
    rows.forEach(function (row) { row.querySelector("details").open = open; });
    every.textContent = open ? "Close all" : "Open all";
  });
  var opened = [];  // on paper: all but the rows that hold, which print as they stand
  window.addEventListener("beforeprint", function () {
    opened = Array.prototype.filter.call(document.querySelectorAll("section details:not([open])"), function (each) {
      var row = each.closest("#verdict-table tr");
      return !row || cell(row, 1) !== "HOLDS";
    });
    opened.forEach(function (each) { each.open = true; });
  });
  window.addEventListener("afterprint", function () { opened.forEach(function (each) { each.open = false; }); });
  filter();
}());
"""


def policy() -> str:
    """What the page may load: nothing but its own style, its own pictures, and the one script by its hash.

    >>> policy().split(";")[0]
    "default-src 'none'"
    """
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
