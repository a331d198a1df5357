// Takes the pictures of README and docs from gavel demo console: node screenshots.mjs GAVEL FOLDER
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
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
const painter = await browser.newPage();
const take = async (name) => {
  const path = join(folder, `${name}.webp`);
  await page.evaluate(() => { document.documentElement.style.scrollbarGutter = "auto"; }); // there is no scrollbar in a picture
  const png = (await page.screenshot()).toString("base64");
  const webp = await painter.evaluate(async (data) => { // a third of the size
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", 0.9).split(",")[1];
  }, png);
  const picture = Buffer.from(webp, "base64");
  writeFileSync(path, picture);
  console.log(`${path}: ${picture.length >> 10} KB`);
  if (picture.length > 150_000) problems.push(`${path} has ${picture.length} bytes`);
};
await take("console-now");
await page.goto(new URL(await page.locator("#waiting li", { hasText: "release" }).locator("a[href*='/reviews/rev-']").first().getAttribute("href"), link).href);
await take("console-review");
await browser.close();
await stop();
rmSync(home, { recursive: true });
problems.forEach((text) => console.log(text));
process.exit(problems.length > 0 ? 1 : 0);
