// What does one twin run on, and how does it take a step?

import fs from 'node:fs';
import { type Container, createLab, type Lab, type Namespace, type Row } from '../helpers/netns.ts';
import { BIN_DIR, type PluginReply, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { observeFiles, observeNamespace } from './observe.ts';
import type { Call, Ground, Side, Step, TwinRow, Verb } from './row.ts';

/** The outcome of a step: the chain's reply, and everything observed afterwards. */
export interface Outcome {
  readonly label: string;
  /** Whether the chain replied with an error; `undefined` for probes. */
  readonly failed?: boolean;
  readonly seen: Row;
}

/** A ground with the steps it can take. */
export interface Twin extends Ground {
  take(step: Step): Promise<Outcome>;
  /** Own paths and names → names that both twins have in common. */
  readonly common: ReadonlyMap<string, string>;
}

/** Creates the ground for one side of a row. The caller must close `twin.lab`. */
export async function createTwin(side: Side, row: TwinRow): Promise<Twin> {
  const lab = await createLab();
  const containers = [await numbered(lab, 1), await numbered(lab, 2)] as const;
  for (const ns of [lab.host, ...containers]) await hasten(lab, ns);
  const ground: Ground = { side, lab, containers };
  const results = new Map<string, unknown>();
  return {
    ...ground,
    common: new Map([
      [lab.tmp, '{tmp}'],
      [lab.host.path, '{host}'],
      ...containers.map(({ path, id }) => [path, id] as const),
    ]),
    async take(step) {
      if (typeof step === 'object' && 'probe' in step) {
        return { label: step.probe, seen: { answer: await step.ask(ground) } };
      }
      const call = typeof step === 'string' ? { verb: step } : step;
      const { label = call.verb } = call;
      const replies = await run(ground, row, call, results);
      const last = replies.at(-1);
      const failed = last?.exitCode !== 0;
      const reply = failed
        ? { failed, code: last?.error?.code }
        : { failed, result: call.verb === 'ADD' ? last?.result : last?.stdout };
      const seen = { reply: { plugins: replies.length, ...reply }, ...(await observe(ground, row, call)) };
      return { label, failed, seen };
    },
  };
}

async function numbered(lab: Lab, number: 1 | 2): Promise<Container> {
  return { ...(await lab.container()), id: `twin-${number}` };
}

// Duplicate address detection and router solicitation take seconds and end at a random moment.
async function hasten(lab: Lab, ns: Namespace): Promise<void> {
  await lab.sysctl(ns, 'net/ipv6/conf/default/dad_transmits', 0);
  await lab.sysctl(ns, 'net/ipv6/conf/default/router_solicitation_delay', 0);
}

/** Runs the chain plugin by plugin, without a runner: forwards for ADD and CHECK, backwards for DEL. */
async function run(
  ground: Ground,
  row: TwinRow,
  call: Call,
  results: Map<string, unknown>,
): Promise<PluginReply[]> {
  const { verb, ifname = 'eth0', container: number = 1 } = call;
  await call.before?.(ground);
  const container = ground.containers[number - 1] as Container;
  const key = `${number} ${ifname}`;
  const netns = await netnsOf(ground, container, call.netns);
  const plugins = call.plugins ?? row.plugins;
  const replies: PluginReply[] = [];
  const given = call.prevResult ?? (verb === 'ADD' ? 'none' : 'last');
  let prevResult = given === 'last' ? results.get(key) : undefined;
  for (const plugin of verb === 'DEL' ? plugins.toReversed() : plugins) {
    const reply = await ground.lab.plugin(String(plugin.type), {
      command: verb,
      conf: call.stdin ?? requestOf(ground, row, call, plugin, prevResult),
      container: { id: container.id, path: netns },
      ifname,
      binDir: ground.side === 'ours' ? BIN_DIR : REFERENCE_BIN_DIR,
      env: { CNI_ARGS: call.args ?? row.args ?? '', ...call.env },
    });
    replies.push(reply);
    if (reply.exitCode !== 0) return replies;
    if (verb === 'ADD') prevResult = reply.result;
  }
  if (verb === 'ADD') results.set(key, prevResult);
  return replies;
}

async function netnsOf(ground: Ground, container: Container, wrong: Call['netns']): Promise<string> {
  if (wrong === 'none') return '';
  if (wrong === 'own') return ground.lab.host.path;
  if (wrong === 'gone') await removeCompletely(ground.lab, container);
  if (wrong === 'no namespace') {
    fs.writeFileSync(`${ground.lab.tmp}/no-namespace`, '');
    return `${ground.lab.tmp}/no-namespace`;
  }
  return container.path;
}

/** The kernel dismantles a namespace some time after its end: only then is the host end of a pair gone. */
async function removeCompletely(lab: Lab, container: Container): Promise<void> {
  const countPairs = async () => (await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).length;
  const before = await countPairs();
  await lab.remove(container);
  for (let attempt = 0; attempt < 50 && before > 0 && (await countPairs()) === before; attempt++) {
    await Bun.sleep(20);
  }
}

function requestOf(ground: Ground, row: TwinRow, call: Call, plugin: Row, prevResult: unknown): object {
  const cniVersion = 'cniVersion' in row ? row.cniVersion : '1.0.0';
  const request = { cniVersion, name: 'podnet', ...plugin, ...row.more, ...call.more, prevResult };
  return JSON.parse(JSON.stringify(request).replaceAll('{tmp}', ground.lab.tmp));
}

async function observe(ground: Ground, row: TwinRow, call: Call): Promise<Row> {
  // CHECK changes nothing on either side, which is tested elsewhere.
  if (call.verb === ('CHECK' satisfies Verb)) return {};
  const { lab, containers } = ground;
  const whole = row.wholePacketFilter ?? false;
  const seen: Row = { host: await observeNamespace(lab, lab.host, whole) };
  for (const container of containers) {
    if (fs.existsSync(container.path)) seen[container.id] = await observeNamespace(lab, container, whole);
  }
  return { ...seen, files: observeFiles(lab.tmp) };
}
