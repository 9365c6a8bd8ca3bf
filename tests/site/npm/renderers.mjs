// Which Markdown cells do notebook programs refuse?  VS Code sets formulas by markdown-it-katex, JupyterLab and
// Colab by MathJax, which sees the formulas of a cell between dollars.  Each cell is rendered alone: programs
// differ in what macros they keep from other cells.  In: JSON list of texts; out: JSON list of complaints.
import { readFileSync } from "node:fs";
import MarkdownIt from "markdown-it";
import plugin from "@vscode/markdown-it-katex";
import { mathjax } from "mathjax-full/js/mathjax.js";
import { TeX } from "mathjax-full/js/input/tex.js";
import { CHTML } from "mathjax-full/js/output/chtml.js";
import { liteAdaptor } from "mathjax-full/js/adaptors/liteAdaptor.js";
import { RegisterHTMLHandler } from "mathjax-full/js/handlers/html.js";
import { AllPackages } from "mathjax-full/js/input/tex/AllPackages.js";

const found = [];
// The plug-in shows the source of a formula that it cannot set, and says why to the console.
console.error = console.warn = console.log = (error) => found.push(`VS Code: ${error?.message ?? error}`);
const cells = JSON.parse(readFileSync(0, "utf8"));

const vscode = new MarkdownIt({ html: true });
vscode.use(plugin.default ?? plugin, { throwOnError: true, strict: false });
const adaptor = liteAdaptor();
RegisterHTMLHandler(adaptor);
const tex = () => new TeX({
  packages: AllPackages.filter((name) => name !== "bussproofs" && name !== "noundefined" && name !== "noerrors"),
  inlineMath: [["$", "$"], ["\\(", "\\)"]],
  formatError: (jax, error) => { throw error; },
});

for (const [number, text] of cells.entries()) {
  const before = found.length;
  try {
    const html = vscode.render(text);
    if (/class="katex-error"/.test(html)) found.push("VS Code: katex-error");
  } catch (error) {
    found.push(`VS Code: ${error.message}`);
  }
  try {
    const body = text.replace(/`[^`]*`/g, "").replace(/&/g, "&amp;").replace(/</g, "&lt;");
    const page = mathjax.document(`<html><body><p>${body}</p></body></html>`, { InputJax: tex(), OutputJax: new CHTML() });
    page.findMath().compile();
    for (const formula of page.math) {
      if (String(formula.root).includes("merror")) found.push(`MathJax: ${formula.math}`);
    }
  } catch (error) {
    found.push(`MathJax: ${error.message}`);
  }
  for (let i = before; i < found.length; i++) found[i] = { cell: number, complaint: found[i] };
}
process.stdout.write(JSON.stringify(found));
