// How does a test run a chain of scripted plugins? (test/fixtures/plugins)

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type Conflist, parseNetwork } from '../../src/chain/config/conflist.ts';
import type { Attachment, Runtime } from '../../src/chain/run/runtime.ts';
import type { JsonObject } from '../../src/cni/json.ts';
import { endClaims } from './journal.ts';
import { wholeLines } from './lines.ts';
import { ROOT } from './source-tree.ts';

/** Directory of the plugins `noop`, `fail`, `hang` and `garbage`. */
export const FIXTURE_PLUGINS = path.join(ROOT, 'test/fixtures/plugins');

/** One call as a `noop` recorded it. */
export interface Recorded {
  readonly command: string;
  readonly env: Readonly<Record<string, string>>;
  readonly request: JsonObject;
}

/** A directory for one test: configurations, result cache, the plugins' recorded calls. */
export interface NoopChain {
  readonly dir: string;
  readonly runtime: Runtime & { readonly cacheDir: string };
  /** Configuration of a `noop` that follows the script (noop.ts lists its keys). */
  noop(label: string, script?: JsonObject, conf?: JsonObject): JsonObject;
  /** Changes what a `noop` does from now on. */
  rescript(label: string, script: JsonObject): void;
  /** Every call so far. */
  calls(): Recorded[];
  /** `ADD one`, `ADD two`, …: verb and label of every call so far. */
  order(): string[];
  dispose(): void;
}

/** The default attachment of tests. */
export const ATTACHMENT: Attachment = { containerId: 'c1', netns: '/run/netns/none', ifname: 'eth0' };

/** The calls that `commandLog` has so far. */
export function readCalls(file: string): Recorded[] {
  return wholeLines(file).map(line => JSON.parse(line));
}

/** Creates the directory; call dispose() at the end. */
export function makeNoopChain(): NoopChain {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-chain-'));
  const logFile = path.join(dir, 'log');
  const scriptFile = (label: string) => path.join(dir, `${label}.json`);
  return {
    dir,
    runtime: { pluginDirs: [FIXTURE_PLUGINS], cacheDir: path.join(dir, 'cache') },
    noop(label, script = {}, conf = {}) {
      fs.writeFileSync(scriptFile(label), JSON.stringify(script));
      return { type: 'noop', label, debugFile: scriptFile(label), commandLog: logFile, ...conf };
    },
    rescript: (label, script) => fs.writeFileSync(scriptFile(label), JSON.stringify(script)),
    calls: () => readCalls(logFile),
    order: () =>
      readCalls(logFile).map(({ command, request }) => `${command} ${request.label ?? request.type}`),
    dispose() {
      endClaims();
      fs.rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** A conflist named `testnet`. */
export function listOf(cniVersion: string, plugins: readonly JsonObject[], more: JsonObject = {}): Conflist {
  return parseNetwork(JSON.stringify({ cniVersion, name: 'testnet', ...more, plugins }));
}
