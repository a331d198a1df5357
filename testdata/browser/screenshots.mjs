// Takes the pictures of README and docs from gavel demo console: node screenshots.mjs GAVEL FOLDER
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch, open } from "./browser.mjs";
import { start, stop } from "./world.mjs";

const [gavel, folder] = process.argv.slice(2);
const home = mkdtempSync(join(tmpdir(), "gavel-pictures-"));
const { found: [link] } = await start(gavel, ["demo", "console", "--store", join(home, "gavel.db")], /^http\S+\/console\/link\/\S+$/);
const browser = await launch();
const problems = [];
const page = await open(browser, { allowed: [new URL(link).origin], report: (text) => problems.push(text), viewport: { width: 1280, height: 800 }, colorScheme: "light" });
await page.goto(link);
await page.waitForLoadState("networkidle").catch(() => {});
const take = async (name) => {
  const path = join(folder, `${name}.png`);
  await page.screenshot({ path });
  const { size } = statSync(path);
  console.log(`${path}: ${size >> 10} KB`);
  if (size > 150_000) problems.push(`${path} has ${size} bytes`);
};
await take("console-now");
await page.goto(new URL(await page.locator("#waiting a[href*='/reviews/rev-']").first().getAttribute("href"), link).href);
await take("console-review");
await browser.close();
await stop();
rmSync(home, { recursive: true });
problems.forEach((text) => console.log(text));
process.exit(problems.length > 0 ? 1 : 0);
