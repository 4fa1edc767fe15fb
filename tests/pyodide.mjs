// The wheel in Pyodide under Node: node tests/pyodide.mjs FOLDER; `.ci/pyodide` makes the folder and reads the last line.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const folder = path.resolve(process.argv[2]);
const { loadPyodide } = await import(pathToFileURL(path.join(folder, "node_modules/pyodide/pyodide.mjs")));
const python = await loadPyodide({ packageCacheDir: path.join(folder, "packages") });
for (const file of fs.readdirSync(path.join(folder, "wheels"))) {
  python.unpackArchive(new Uint8Array(fs.readFileSync(path.join(folder, "wheels", file))), "wheel");
}
console.log("shown:", python.runPython(`
import platform, sys
import flint, sympy
from flint import arb, ctx
ctx.dps = 40
assert (arb(2).sqrt() ** 2).contains(2) and float((arb(2).sqrt() ** 2).rad()) < 1e-35
assert str(sympy.diff(sympy.sin(sympy.Symbol("x")))) == "cos(x)"
f"Pyodide with Python {platform.python_version()}, python-flint {flint.__version__} and SymPy {sympy.__version__} compute"
`));
try {
  await python.loadPackage(["numpy", "scipy", "matplotlib", "lazy-loader"], { messageCallback: () => {}, errorCallback: () => {} });
  python.runPython("import numpy, scipy, matplotlib, lazy_loader");
} catch {
  console.log("NOT SHOWN: NumPy, SciPy and matplotlib for Pyodide could not be had, so bilevel-sym was not run there");
  process.exit(0);
}
console.log("SHOWN:", python.runPython(`
import json
from verify.reporting.glimpse import glimpse
scalar = glimpse("x*y + y", "(1 + x**2)*y**2/2 - x*y", "x", "y", box_x="-3, 3", box_y="-1, 1", at="1/3", digits=40)
minimax = glimpse("x**2 + x*y - y**2", "", "x", "y", box_x="-1, 1", box_y="-1, 1", at="1/2")
assert "0.4000000000000000000000000000000000000000" in scalar and "0.3125" in minimax
assert all(page.count("<math") >= 2 and page.count("<svg") == 1 and 'class="absent"' not in page for page in (scalar, minimax))
"formulas, digits and landscapes of two problems"
`));
