// Checks the built pages as a reader has them, from files: node site.mjs FOLDER SHOTS
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { launch, open, serious } from "./browser.mjs";
import { checkFiles, pagesOf } from "./files.mjs";

const [folder, shots] = process.argv.slice(2);
const root = pathToFileURL(folder).href + "/";
const began = Date.now();
const took = (what) => console.log(`${what}, after ${((Date.now() - began) / 1000).toFixed(0)} s`);
const problems = new Set();
const report = (text) => problems.has(text) || (problems.add(text), console.log(text));
checkFiles(folder).forEach(report);

// Written pages, and some of those that a program writes in one form.
const sample = pagesOf(folder).filter((name) => !/^(decisions|reference\/(cli|rest))\//.test(name) || /\/(index|0046.*|chain|serve|types|identity)\.html/.test(name));
const narrow = ["index.html", "quickstart.html", "chains.html", "reference/config.html", "reference/tools.html", "reference/model-faults.html", "reference/rest/types.html", "reference/cli/serve.html"];

const browser = await launch();
const tab = (options) => open(browser, { allowed: [root], report, viewport: { width: 1440, height: 900 }, ...options });

/** Shows each page in a tab, and adds what axe finds there. */
async function check(names, page, how, also = async () => {}) {
  for (const name of names) {
    await page.goto(root + name, { waitUntil: "load" });
    (await serious(page)).forEach((text) => report(`${name}, ${how}: ${text}`));
    await also(name);
  }
  took(`${names.length} pages, ${how}, ${problems.size} problems`);
}

const light = await tab({ colorScheme: "light" });
const dark = await tab({ colorScheme: "dark" });
const small = await tab({ colorScheme: "light", viewport: { width: 360, height: 740 } });
await Promise.all([
  check(sample, light, "light"),
  (async () => {
    await check([...narrow, "hooks.html", "reference/cli.html"], dark, "dark", async (name) => {
      const scheme = await dark.evaluate(() => document.body.dataset.mdColorScheme);
      if (scheme !== "slate") report(`${name} does not follow the system's dark theme: ${scheme}`);
    });
    await check(narrow, small, "360 px", async (name) => {
      const width = await small.evaluate(() => document.documentElement.scrollWidth);
      if (width > 360) report(`${name} is ${width} px wide on a screen of 360`);
    });
  })(),
]);

// The search finds the pages about a word without a server.
for (const [words, page] of [["quarantined", "runbooks/GavelScriptQuarantined.html"], ["onJudgeUnavailable", "judge.html"], ["adjudicated", "reference/cli/eval.html"]]) {
  await light.goto(root + "index.html");
  await light.locator("input[name=query]").click();
  await light.keyboard.type(words);
  await light.locator(`.md-search-result__link[href*="${page}"]`).first().waitFor({ timeout: 30_000 })
    .catch(() => report(`the search for ${words} does not find ${page}`));
}
took("search");

if (shots) {
  mkdirSync(shots, { recursive: true });
  for (const name of narrow) {
    for (const [kind, page] of Object.entries({ light, dark, small })) {
      await page.goto(root + name);
      await page.screenshot({ path: join(shots, `${name.replace(/\W+/g, "-").replace(/-html$/, "")}-${kind}.png`) });
    }
  }
  took("screenshots");
}
await browser.close();
console.log(`${problems.size} problems`);
process.exit(problems.size ? 1 : 0);
