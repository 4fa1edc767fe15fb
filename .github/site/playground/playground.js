// Loads Python when it is first asked for, hands it what stands in the form, and shows the page that comes back in a
// frame without scripts. What a reader writes is never put together to markup here.
"use strict";
(() => {
  const CORE = "https://cdn.jsdelivr.net/npm/pyodide@314.0.7/";
  const PACKAGES = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/"; // each checked against the lock file
  const HASHES = {
    "pyodide.js": "sha384-hYKrcQ7FiKU7f1c92md9N2eh7BoBVX4CPkNDfQyyVclsjZevvDOBUkajGcYk1EF8",
    "pyodide-lock.json": "sha384-o8SQQvpVlZnOl04+3dFTJipKxul9GbViVusA379wlOrfHSgxbzt0yPiqCTxOiYES",
  };
  const WHEELS = { // beside the page: `.github/site/wheels` puts them there
    "mpmath-1.3.0-py3-none-any.whl":
      "sha384-3VZV+DUO5Pac/3Fbx/TD8ahw1D+n+X0efE+4+M5hvaLMYoq4PNScmmPfM5eiP7qV",
    "sympy-1.14.0-py3-none-any.whl":
      "sha384-hNwN6PT5kTETzIODYrXP3Xm2N4PpbCelh1ae5LKQMjUBTfJlRfXPqKXgJX88DRtp",
    "python_flint-0.9.0-cp314-cp314-pyemscripten_2026_0_wasm32.whl":
      "sha384-hmhxsannteVEZhHmhynF8SGSOkiFLOUN7CuLVyj7gGj/EGYcF9X7JlvZVHjtGROk",
  };
  const FIELDS = ["f", "g", "x", "y", "box_x", "box_y", "at", "digits"];
  const EXAMPLES = {
    "one variable": ["x*y + y", "(1 + x**2)*y**2/2 - x*y", "x", "y", "-3, 3", "-1, 1", "1/3", "30"],
    "a saddle point": ["x1*y1/4 + x2*y2/2 - 3*y1**2/4", "y1**4/4 + y1**2/2 - x1*y1 + y2**2/2 - x2*y2", "x1 x2", "y1 y2",
      "-4, 4", "-4, 4", "1/2, 1/3", "30"],
    "a lower level without a closed form": ["(y - 1)**2 + x/10", "exp(y) + y**2/2 - x*y", "x", "y", "-2, 4", "-4, 3", "2", "50"],
    "minimax": ["x**2 + x*y - y**2", "", "x", "y", "-1, 1", "-1, 1", "1/2", "30"],
  };
  const at = (name) => document.getElementById(name);
  const tell = (text) => { at("told").textContent = text; };
  let python = null;

  for (const name of Object.keys(EXAMPLES)) {
    at("example").append(new Option(name));
  }
  const fill = () => FIELDS.forEach((field, k) => { at(field).value = EXAMPLES[at("example").value][k]; });
  at("example").addEventListener("change", fill);
  fill();

  const bytes = async (address, integrity) => {
    const answer = await fetch(address, integrity ? { integrity } : {});
    if (!answer.ok) {
      throw new Error(`${address}: ${answer.status}`);
    }
    return new Uint8Array(await answer.arrayBuffer());
  };
  const script = (name) => new Promise((done, failed) => {
    const element = Object.assign(document.createElement("script"),
      { src: CORE + name, integrity: HASHES[name], crossOrigin: "anonymous", onload: done });
    element.onerror = () => failed(new Error(`${CORE + name} could not be had, or is not what it was`));
    document.head.append(element);
  });

  async function load() {
    tell("Fetching Pyodide …");
    if (!window.loadPyodide) {
      await script("pyodide.js");
    }
    const lock = new TextDecoder().decode(await bytes(CORE + "pyodide-lock.json", HASHES["pyodide-lock.json"]));
    const made = await window.loadPyodide({ indexURL: CORE, lockFileContents: lock, packageBaseUrl: PACKAGES });
    tell("Fetching NumPy, SciPy and matplotlib …");
    await made.loadPackage(["numpy", "scipy", "matplotlib", "lazy-loader"]);
    tell("Fetching SymPy, mpmath, python-flint and bilevel-sym …");
    for (const [name, hash] of Object.entries(WHEELS)) {
      made.unpackArchive(await bytes(`wheels/${name}`, hash), "wheel");
    }
    made.unpackArchive(await bytes("bilevel_sym.whl"), "wheel");
    tell("Starting …");
    return made.pyimport("verify.reporting.glimpse");
  }

  at("problem").addEventListener("submit", async (event) => {
    event.preventDefault();
    at("go").disabled = true;
    try {
      python = python ?? await load();
      tell("Computing …");
      await new Promise((done) => setTimeout(done, 50)); // so that this is seen
      const { f, g, x, y, ...others } = Object.fromEntries(FIELDS.map((field) => [field, at(field).value]));
      at("result").srcdoc = python.glimpse.callKwargs(f, g, x, y, { ...others, digits: Number(others.digits) });
      at("result").hidden = false;
      tell("Done: below.");
    } catch (error) {
      tell(`It did not work: ${error.message}`);
    } finally {
      at("go").disabled = false;
    }
  });
})();
