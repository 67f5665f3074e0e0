// How long did the calls of a network take on a node, measured where the runtime makes them, whichever plugins it calls?
// A program takes the plugins' place in containerd's directory, starts them, and writes down how long they took.

import fs from 'node:fs';
import path from 'node:path';
import { runOk } from '../helpers/command.ts';
import type { Node } from './node.ts';

const SOURCE = path.join(import.meta.dir, 'stopwatch.c');
/** Where Catena's plugins are. */
export const PLUGINS = '/opt/cni/bin';
/** Leads to the directory whose plugins it starts. */
const CALLED = '/opt/cni/called';
/** containerd's directory from then on. */
const TIMED = '/opt/cni/timed';
const LOG = '/var/log/stopwatch';
/** What containerd calls itself: what stands in front of a list, or its plugins, and its own network's. */
const NAMES = ['catena', 'multus', 'loopback', 'bridge', 'portmap', 'bandwidth'];

/** One verb for one container: all plugins of all its networks. */
export interface Call {
  readonly verb: string;
  readonly ms: number;
  /** Processor time of the plugins, also when they are called again, without that of a daemon that works for them. */
  readonly cpuMs: number;
}

/** Has a node's containerd call plugins through the stopwatch, until the node ends. */
export async function startStopwatch({
  machine,
  kill,
  start,
}: Pick<Node, 'machine' | 'kill' | 'start'>): Promise<void> {
  const program = `${machine.lab.tmp}/stopwatch`;
  const defines = [`-DCALLED="${CALLED}"`, `-DLOG="${LOG}"`];
  await runOk(['cc', '-O2', '-Wall', ...defines, '-o', program, SOURCE]);
  fs.mkdirSync(machine.path(TIMED), { recursive: true });
  for (const name of NAMES) fs.copyFileSync(program, machine.path(`${TIMED}/${name}`));
  fs.symlinkSync(PLUGINS, machine.path(CALLED));
  const file = machine.path('/etc/containerd/config.toml');
  const config = fs.readFileSync(file, 'utf8');
  fs.writeFileSync(file, config.replace(`bin_dir = "${PLUGINS}"`, `bin_dir = "${TIMED}"`));
  await kill('containerd');
  await start('containerd');
}

/** Has it start the plugins of a directory of the node. */
export function callPluginsOf({ machine }: Pick<Node, 'machine'>, dir: string): void {
  fs.symlinkSync(dir, machine.path(`${CALLED}.next`));
  fs.renameSync(machine.path(`${CALLED}.next`), machine.path(CALLED));
}

/** What it has written so far; a later reading can begin behind it. */
export function readStopwatch({ machine }: Pick<Node, 'machine'>): string {
  const file = machine.path(LOG);
  return fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : '';
}

/**
 * The calls in lines of the stopwatch. Of a plugin that is called again for the same container, as DEL is, the time of the first call counts.
 * What runs at the same time counts once. Processor time is that of all calls: a runtime repeats DEL three times and more for each pod.
 */
export function callsIn(text: string): Call[] {
  const calls = new Map<string, { plugins: Set<string>; start: number; end: number; cpu: number }>();
  for (const line of text.split('\n')) {
    const [verb = '', container = '', plugin = '', ...numbers] = line.split(' ');
    const [start = 0, end = 0, cpu = 0] = numbers.map(Number);
    if (container === '' || container === '-') continue;
    const key = `${verb} ${container}`;
    const call = calls.get(key) ?? { plugins: new Set(), start, end, cpu: 0 };
    calls.set(key, call);
    call.cpu += cpu;
    if (call.plugins.has(plugin)) continue;
    call.plugins.add(plugin);
    call.start = Math.min(call.start, start);
    call.end = Math.max(call.end, end);
  }
  return [...calls].map(([key, { start, end, cpu }]) => ({
    verb: key.split(' ')[0] ?? '',
    ms: (end - start) / 1e6,
    cpuMs: cpu / 1e6,
  }));
}
