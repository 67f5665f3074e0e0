// How does a test damage what a daemon watches, and how long does it take until traffic passes again?
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { type Chain, type RunChain, writeChain } from './chain.ts';
import { type Daemon, startDaemonWith } from './daemon.ts';
import type { Container, Lab, Namespace, Row } from './netns.ts';
import { BIN_DIR } from './plugin.ts';
import { stateOf } from './plugin-calls.ts';
import { until } from './until.ts';

const PROBE = path.join(import.meta.dirname, '../fixtures/probe.ts');

/** Further variables of the environment. */
type Environment = Readonly<Record<string, string>>;

/** A list with a bridge of its own, masquerading and host ports. */
export function watchedList(lab: Lab, name: string, subnet: string, more: object = {}): Row {
  return {
    cniVersion: '1.1.0',
    name,
    ...more,
    plugins: [
      {
        type: 'bridge',
        bridge: `br-${name}`,
        isDefaultGateway: true,
        ipMasq: true,
        ipam: { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
    ],
  };
}

/** ADD with one TCP port of the host. */
export function withPort(hostPort: number): RunChain {
  return { cap: { portMappings: [{ hostPort, containerPort: 80, protocol: 'tcp' }] } };
}

/** A chain with one attachment. */
export async function attach(
  lab: Lab,
  list: Row,
  hostPort: number,
  env: Environment = {},
): Promise<{ chain: Chain; container: Container }> {
  const container = await lab.container();
  const chain = writeChain(lab, list);
  await chain.add(container, { ...withPort(hostPort), env });
  return { chain, container };
}

/** Starts a daemon with these settings; its configuration directory is `net.d` of the lab. */
export async function startWatcher(lab: Lab, settings: Row, more: Environment = {}): Promise<Daemon> {
  const file = `${lab.tmp}/daemon.json`;
  writeFileSync(file, JSON.stringify({ log: `file:${lab.tmp}/daemon.log`, ...settings }));
  // Attachments of other runtimes do not say where their plugins are.
  const env = { CNI_PATH: BIN_DIR, ...more };
  const daemon = await startDaemonWith(lab, { env }, '--config', file, '--conf-dir', `${lab.tmp}/net.d`);
  // It listens for calls a moment before it listens to the kernel.
  await untilWatch(daemon, watch => watch?.attachments > 0);
  return daemon;
}

/** Waits for a state of the watch. */
export async function untilWatch(daemon: Daemon, isSo: (watch: Row) => boolean): Promise<Row> {
  let watch: Row = {};
  await until(
    async () => {
      watch = (await stateOf(daemon)).watch;
      return isSo(watch);
    },
    { withinMs: 40_000, everyMs: 10 },
  ).catch(error => {
    throw new Error(`${error.message}: the watch reports ${JSON.stringify(watch)}`);
  });
  return watch;
}

/** A client that asks an echo server all the time. */
export interface Probe {
  /** Resolves with the time of the next change to this state, in milliseconds since the epoch. */
  next(state: 'up' | 'down'): Promise<number>;
  /** The state now, and since when, in milliseconds since the epoch. */
  latest(): { readonly isUp: boolean; readonly at: number };
}

export async function startProbe(lab: Lab, from: Namespace, address: string, port: number): Promise<Probe> {
  const child = lab.start(from, [process.execPath, PROBE, address, String(port)]);
  const seen: string[] = [];
  let latest = { isUp: false, at: 0 };
  void (async () => {
    const decoder = new TextDecoder();
    let text = '';
    for await (const chunk of child.stdout) {
      text += decoder.decode(chunk, { stream: true });
      const lines = text.split('\n');
      text = lines.pop() ?? '';
      seen.push(...lines);
      for (const [state, at] of lines.map(line => line.split(' ')))
        latest = { isUp: state === 'up', at: Number(at) };
    }
  })();
  const next: Probe['next'] = async state => {
    let found: string | undefined;
    await until(
      () => {
        found = seen.find(line => line.startsWith(state));
        return found !== undefined;
      },
      { withinMs: 40_000 },
    );
    seen.splice(0, seen.indexOf(found ?? '') + 1);
    return Number(found?.split(' ')[1]);
  };
  await next('up');
  return { next, latest: () => latest };
}
