// The extension in a real VS Code (code-server and a headless Chromium), with the recorded H100 of tests/e2e as its GPU.
//
//   tests/editors/vscode/install PREFIX
//   (cd editors/vscode && npm ci && npx vsce package)
//   node tests/editors/vscode/drive.mjs PREFIX PICTURES
//
// Says each step with its time; ends with 1 and a picture at the first that does not happen.
import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), "../../..");
const [prefix, pictures] = process.argv.slice(2).map((one) => resolve(one));
const { chromium } = createRequire(join(prefix, "package.json"))(
  "playwright-core",
);
const PATIENCE_MS = 60_000;
const GPU = '.statusbar-item:has-text("H100 80GB HBM3")';
const kernel = (word) => `// orbit: n = 1 << 20; x = randn(n); y = randn(n)
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y)
__global__ void saxpy(int n, float a, const float* x, float* y) {  // ${word}
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
`;

const scratch = mkdtempSync(join(tmpdir(), "orbit-vscode-"));
const folder = join(scratch, "work");
const touched = join(scratch, "the-workspace-started-a-program");
const started = Date.now();
const say = (text) =>
  console.log(
    `${((Date.now() - started) / 1000).toFixed(1).padStart(6)} s  ${text}`,
  );

function script(name, body) {
  const file = join(scratch, name);
  writeFileSync(file, `#!/bin/sh\n${body}\n`);
  chmodSync(file, 0o755);
  return file;
}

const python = script(
  "python",
  `exec "${ROOT}/.venv/bin/python" "${ROOT}/tests/e2e/recorded_worker.py" "$@"`,
);
const crashing = script("crashing", 'echo "no module named pygls" >&2; exit 3');
const stranger = script("stranger", `touch "${touched}"; exit 1`);
mkdirSync(join(folder, ".vscode"), { recursive: true });
mkdirSync(join(scratch, "data/Machine"), { recursive: true });
mkdirSync(pictures, { recursive: true });
writeFileSync(join(folder, "sweep.cu"), kernel("SWEEP"));
writeFileSync(join(folder, "slow.cu"), kernel("SLOW"));
writeFileSync(
  join(folder, ".vscode/settings.json"),
  JSON.stringify({ "orbit.serverPath": stranger, "orbit.python": stranger }),
);
const serverPath = (file) =>
  writeFileSync(
    join(scratch, "data/Machine/settings.json"), // a machine's settings are not read from the user's in a remote window
    JSON.stringify({
      "orbit.serverPath": file,
      "orbit.python": python,
      "workbench.startupEditor": "none",
    }),
  );
serverPath(`${ROOT}/.venv/bin/orbit-lsp`);
writeFileSync(join(scratch, "config.yaml"), "auth: none\n");

const port = await new Promise((done) => {
  const probe = createServer().listen(0, "127.0.0.1", () => {
    const { port } = probe.address();
    probe.close(() => done(port));
  });
});
const command = [
  join(prefix, "node_modules/code-server/out/node/entry.js"),
  ...[
    "--auth",
    "none",
    "--bind-addr",
    `127.0.0.1:${port}`,
    "--disable-telemetry",
    "--disable-update-check",
  ],
  ...[
    "--user-data-dir",
    join(scratch, "data"),
    "--extensions-dir",
    join(scratch, "extensions"),
  ],
  ...["--config", join(scratch, "config.yaml")],
];
const env = { ...process.env, EXTENSIONS_GALLERY: "{}" };
const vsix = join(ROOT, "editors/vscode/orbit-lsp-0.1.0.vsix");
execFileSync(join(prefix, "node"), [...command, "--install-extension", vsix], {
  env,
  stdio: "pipe",
});
say("the .vsix is installed into a fresh profile");

const host = spawn(join(prefix, "node"), command, {
  env,
  stdio: "ignore",
  detached: true,
});
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
  ],
});
const page = await browser.newPage({ viewport: { width: 1400, height: 820 } });
page.setDefaultTimeout(PATIENCE_MS);

async function see(selector, what, options = {}) {
  await page.waitForSelector(selector, options);
  say(what);
}

async function palette(title) {
  await page.keyboard.press("F1");
  await page.waitForSelector(".quick-input-widget input:focus");
  await page.keyboard.type(title);
  await page.click(
    `.quick-input-list .monaco-list-row[aria-label^="${title}"]`,
  );
}

async function listening(url) {
  for (const end = Date.now() + PATIENCE_MS; Date.now() < end;)
    if ((await fetch(url).catch(() => undefined))?.ok) return;
  throw new Error("code-server does not listen");
}

const open = (name) => page.dblclick(`.monaco-list-row[aria-label*="${name}"]`);

try {
  await listening(`http://127.0.0.1:${port}/healthz`);
  await page.goto(`http://127.0.0.1:${port}/?folder=${folder}`);
  await see(
    '.statusbar-item:has-text("Restricted Mode")',
    "the workspace is not trusted",
  );
  await open("sweep.cu");
  await see(
    '.codelens-decoration a:has-text("Run on H100")',
    "the lens names the GPU",
  );
  await see(GPU, "the status bar names it too");
  if (existsSync(touched))
    throw new Error("a program that an untrusted workspace names was started");

  await page.click('.codelens-decoration a:has-text("Run")');
  await see('.view-line:has-text("⏱")', "the time is on the kernel's line");
  await page.click('.view-line:has-text("__global__")');
  await palette("Orbit: Open the Report");
  await see('.tab[aria-label*="sweep-saxpy"]', "the report opens beside it");
  await page
    .frameLocator("iframe.webview")
    .frameLocator("iframe")
    .locator('h1:has-text("saxpy")')
    .waitFor();
  say("and shows itself");
  await page.screenshot({ path: join(pictures, "vscode-report.png") });

  await page.click('.tab[aria-label*="sweep.cu"]');
  await open("slow.cu");
  await see('.tab.active[aria-label*="slow.cu"]', "another file");
  await page.click(
    '.editor-group-container.active .codelens-decoration a:has-text("Run")',
  );
  await see(
    '.statusbar-item:has-text("1 running")',
    "the status bar counts what runs",
  );
  await page.screenshot({ path: join(pictures, "vscode-running.png") });
  await palette("Orbit: Cancel What Runs");
  await see('.statusbar-item:has-text("1 running")', "cancelled", {
    state: "detached",
  });

  await palette("Orbit: Choose the Modal GPU");
  await see(
    '.quick-input-list .monaco-list-row[aria-label^="B200"]',
    "the GPUs to choose from",
  );
  await page.keyboard.press("Escape");

  serverPath(crashing);
  await see(
    '.notification-list-item-message:has-text("5 times in a row")',
    "a server that keeps ending is given up",
  );
  await page.screenshot({ path: join(pictures, "vscode-crashed.png") });
  serverPath(`${ROOT}/.venv/bin/orbit-lsp`);
  await see(GPU, "one that works is started as soon as the setting names it");
} catch (error) {
  say(`FAILED: ${error.message.split("\n")[0]}`);
  await page.screenshot({ path: join(pictures, "vscode-failed.png") });
  process.exitCode = 1;
} finally {
  await browser.close();
  process.kill(-host.pid); // code-server's children outlive it otherwise
  rmSync(scratch, {
    recursive: true,
    force: true,
    maxRetries: 5,
    retryDelay: 200,
  });
}
