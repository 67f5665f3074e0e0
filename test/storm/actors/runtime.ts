// What does a runtime do that calls plugins one by one, as containerd and podman do through libcni?

import fs from 'node:fs';
import type { Add, Caller, Check, Del } from '../history.ts';
import type { CniResult } from '../model.ts';
import { NETS, type Net, type PluginConf, podId, slotPath } from '../networks.ts';
import { run } from '../node.ts';
import type { Place } from '../place.ts';
import { mappingOf } from './command.ts';
import { HANGING_DEADLINE_MS } from './gates.ts';
import { judge, OK, type Outcome } from './outcome.ts';

const DEADLINE_MS = 15_000;
const REFERENCE = '/usr/lib/cni';
const CACHE = '/var/lib/cni/results';

/** What libcni keeps of an ADD. */
interface Cached {
  readonly result?: CniResult | undefined;
  readonly capabilityArgs?: object;
  /** The list in base64, which `catena set` changes. */
  readonly config?: string;
}

/** ADD: every plugin with the result of the one before; then the cache is written. */
export async function add(place: Place, action: Add): Promise<Outcome> {
  const net = NETS[action.net];
  const capabilityArgs = action.hostPort === undefined ? {} : mappingOf(action.hostPort);
  const killAt = Date.now() + (action.killMs ?? Number.POSITIVE_INFINITY);
  let result: CniResult | undefined;
  for (const plugin of net.list.plugins) {
    const called = await call(place, action, 'ADD', plugin, { result, capabilityArgs }, killAt);
    if (called.how !== 'ok') return called;
    result = called.result;
  }
  writeCache(net, action, { result, capabilityArgs });
  return { how: 'ok', ...(result === undefined ? {} : { result }) };
}

/** CHECK: every plugin with the result and the list of the cache, as CRI-O calls it. */
export async function check(place: Place, action: Check): Promise<Outcome> {
  const net = NETS[action.net];
  const cached = readCache(net, action);
  const source = cached.config === undefined ? undefined : Buffer.from(cached.config, 'base64').toString();
  const plugins: readonly PluginConf[] = source === undefined ? net.list.plugins : JSON.parse(source).plugins;
  for (const plugin of plugins) {
    const called = await call(place, action, 'CHECK', plugin, cached, Number.POSITIVE_INFINITY);
    if (called.how !== 'ok') return called;
  }
  return OK;
}

/** DEL: every plugin, last first, with the result of the ADD; libcni gives up at the first failure. */
export async function del(place: Place, action: Del): Promise<Outcome> {
  const net = NETS[action.net];
  const cached = readCache(net, action);
  const killAt = Date.now() + (action.killMs ?? Number.POSITIVE_INFINITY);
  for (const plugin of net.list.plugins.toReversed()) {
    const called = await call(place, action, 'DEL', plugin, cached, killAt);
    if (called.how !== 'ok') return called;
  }
  fs.rmSync(cacheFile(net, action), { force: true });
  return OK;
}

async function call(
  place: Place,
  action: Add | Check | Del,
  command: 'ADD' | 'CHECK' | 'DEL',
  plugin: PluginConf,
  { result, capabilityArgs = {} }: Cached,
  killAt: number,
): Promise<Outcome> {
  const { pod, slot, noCwd } = action;
  const net = NETS[action.net];
  const dir = binOf(place, action);
  const { capabilities = {}, ...rest } = plugin;
  const wanted = Object.keys(capabilities as object);
  const args = Object.entries(capabilityArgs).filter(([name]) => wanted.includes(name));
  const conf = {
    ...rest,
    ...{ cniVersion: net.list.cniVersion, name: net.name },
    ...(args.length ? { runtimeConfig: Object.fromEntries(args) } : {}),
    ...(result === undefined ? {} : { prevResult: result }),
  };
  const netns = action.kind === 'del' && action.noNetns ? '' : slotPath(slot);
  const env = {
    CNI_COMMAND: command,
    CNI_CONTAINERID: podId(pod),
    CNI_NETNS: netns,
    CNI_IFNAME: net.ifname,
    CNI_PATH: dir,
  };
  const killMs = Number.isFinite(killAt) ? Math.max(0, killAt - Date.now()) : undefined;
  const stdin = JSON.stringify(conf);
  const hangs = action.kind === 'add' && action.foreign !== undefined;
  const deadlineMs = hangs ? HANGING_DEADLINE_MS : DEADLINE_MS;
  const ended = await run([`${dir}/${plugin.type}`], { env, stdin, killMs, noCwd, deadlineMs });
  return judge(`${plugin.type} ${command} ${podId(pod)} on ${net.name}`, ended, 'stdout');
}

function binOf(place: Place, { by, net }: { by: Caller; net: Add['net'] }): string {
  return by === 'reference' ? REFERENCE : place.bin(net);
}

function cacheFile(net: Net, { pod }: { pod: number }): string {
  return `${CACHE}/${net.name}-${podId(pod)}-${net.ifname}`;
}

/** As libcni writes it; a result that is not there is left out. */
function writeCache(net: Net, action: Add, { result, capabilityArgs = {} }: Cached): void {
  const record = {
    kind: 'cniCacheV1',
    containerId: podId(action.pod),
    config: Buffer.from(net.source).toString('base64'),
    ifName: net.ifname,
    networkName: net.name,
    netns: slotPath(action.slot),
    ...(Object.keys(capabilityArgs).length ? { capabilityArgs } : {}),
    ...(result === undefined ? {} : { result }),
  };
  fs.mkdirSync(CACHE, { recursive: true });
  fs.writeFileSync(cacheFile(net, action), JSON.stringify(record));
}

function readCache(net: Net, action: Check | Del): Cached {
  try {
    return JSON.parse(fs.readFileSync(cacheFile(net, action), 'utf8'));
  } catch {
    return {};
  }
}
