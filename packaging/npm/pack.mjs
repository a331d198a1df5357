// Packs gavel for npm.
//
//   node packaging/npm/pack.mjs --version 1.2.3 --out DIR linux-x64=FILE [darwin-arm64=FILE ...]
//   node packaging/npm/pack.mjs --split ...
//   node packaging/npm/pack.mjs --split --dist dist [--licenses DIR]
//
// --dist takes version and binaries from what goreleaser built there, and writes into its folder npm.
// --licenses adds a folder of licences to each package that has a binary.
// Without --split there is one package with all the binaries that were given. With it
// each binary gets a package of its own (gavel-mcp-linux-x64), which npm installs only
// where it fits, and gavel-mcp names them as optional dependencies: the layout of a
// release. Prints the tarballs, the main one last.
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const here = path.dirname(fileURLToPath(import.meta.url));
const { values, positionals } = parseArgs({
  options: {
    version: { type: 'string' }, out: { type: 'string' }, split: { type: 'boolean', default: false }, dist: { type: 'string' }, licenses: { type: 'string' },
  },
  allowPositionals: true,
});
if (values.dist) {
  const made = (name) => JSON.parse(readFileSync(path.join(values.dist, name), 'utf8'));
  const node = { windows: 'win32', amd64: 'x64' }; // as Node calls them
  values.version ??= made('metadata.json').version;
  values.out ??= path.join(values.dist, 'npm');
  for (const a of made('artifacts.json').filter((a) => a.type === 'Binary')) {
    // Its path starts where goreleaser ran: in the folder above.
    positionals.push(`${node[a.goos] ?? a.goos}-${node[a.goarch] ?? a.goarch}=${path.join(values.dist, '..', a.path)}`);
  }
}
if (!values.version || !values.out || positionals.length === 0) {
  console.error('usage: node pack.mjs [--split] [--licenses DIR] (--dist DIR | --version VERSION --out DIR PLATFORM-ARCH=FILE ...)');
  process.exit(2);
}
const main = { ...JSON.parse(readFileSync(path.join(here, 'package.json'), 'utf8')), version: values.version };
const binaries = positionals.sort().map((pair) => {
  const at = pair.indexOf('=');
  const [platform, file] = [pair.slice(0, at), path.resolve(pair.slice(at + 1))];
  const [os, cpu] = platform.split('-');
  if (!main.os.includes(os) || !main.cpu.includes(cpu)) throw new Error(`${platform}: not a platform of package.json`);
  return { platform, os, cpu, file, name: os === 'win32' ? 'gavel.exe' : 'gavel' };
});
mkdirSync(values.out, { recursive: true });
const work = mkdtempSync(path.join(tmpdir(), 'gavel-npm-'));

// place copies a binary, so that it can be run by everybody who can read it.
function place(binary, dir) {
  mkdirSync(dir, { recursive: true });
  copyFileSync(binary.file, path.join(dir, binary.name));
  chmodSync(path.join(dir, binary.name), 0o755);
}

// addLicenses copies the licences of what is linked into the binaries.
function addLicenses(dir) {
  if (values.licenses) cpSync(values.licenses, path.join(dir, 'licenses'), { recursive: true });
}

function pack(name, manifest, fill) {
  const dir = path.join(work, name);
  mkdirSync(dir);
  writeFileSync(path.join(dir, 'package.json'), JSON.stringify(manifest, null, 2) + '\n');
  copyFileSync(path.join(here, '..', '..', 'LICENSE'), path.join(dir, 'LICENSE'));
  copyFileSync(path.join(here, 'README.md'), path.join(dir, 'README.md'));
  fill(dir);
  for (const file of readdirSync(dir, { recursive: true }).map((name) => path.join(dir, name))) { // whatever the umask is here
    chmodSync(file, statSync(file).mode & 0o100 ? 0o755 : 0o644);
  }
  const args = ['pack', '--ignore-scripts', '--loglevel=error', '--pack-destination', path.resolve(values.out)];
  const out = execFileSync('npm', args, { cwd: dir, encoding: 'utf8', shell: process.platform === 'win32' });
  console.log(path.join(path.resolve(values.out), out.trim().split('\n').pop()));
}

if (values.split) {
  main.optionalDependencies = {};
  main.files = ['bin/gavel.js'];
  for (const b of binaries) {
    const name = `gavel-mcp-${b.platform}`;
    const { version, license, repository } = main;
    main.optionalDependencies[name] = version; // exactly: the two are one program
    const description = `gavel for ${b.platform}; install gavel-mcp`;
    pack(name, { name, version, description, license, repository, os: [b.os], cpu: [b.cpu], files: [b.name, 'licenses/'] }, (dir) => {
      place(b, dir);
      addLicenses(dir);
    });
  }
} else { // npm installs it only where one of its binaries runs
  main.os = [...new Set(binaries.map((b) => b.os))];
  main.cpu = [...new Set(binaries.map((b) => b.cpu))];
}
pack('gavel-mcp', main, (dir) => {
  cpSync(path.join(here, 'bin'), path.join(dir, 'bin'), { recursive: true });
  if (values.split) return;
  for (const b of binaries) place(b, path.join(dir, 'native', b.platform));
  addLicenses(dir);
});
rmSync(work, { recursive: true, force: true });
