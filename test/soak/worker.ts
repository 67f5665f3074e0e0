// What runs inside the fake host during a soak? One process with the library, eight attachments at a time.

import fs from 'node:fs';
import {
  type Attachment,
  addNetwork,
  checkNetwork,
  collectGarbage,
  deleteNetwork,
  type JsonObject,
  parseNetwork,
  type Runtime,
} from '../../src/index.ts';
import { childrenOf } from '../helpers/children.ts';
import { type Order, sayLine, type Tally } from './order.ts';

const AT_A_TIME = 8;
/** Percentages of lives in which more happens than ADD and DEL. */
const CHECKED = 25;
const DELETED_TWICE = 20;
const ADDED_TWICE = 4;
const FAILING = 6;
const ABANDONED = 4;

const order = JSON.parse(process.argv[2] ?? '{}') as Order;
const list = parseNetwork(JSON.stringify(order.list));
/** The same network with a last plugin that fails on ADD. */
const broken = parseNetwork(
  JSON.stringify({ ...order.list, plugins: [...order.list.plugins, brokenLink()] }),
);
const runtime: Runtime = { pluginDirs: order.pluginDirs, cacheDir: order.cacheDir };

const tally: Tally = { ADD: 0, CHECK: 0, DEL: 0, GC: 0, failing: 0, abandoned: 0, problems: [] };
/** Everything that the runtime knows: from before its ADD until after its DEL. */
const alive = new Set<string>();
let next = 0;
let collecting: Promise<unknown> | undefined;

await Promise.all(order.namespaces.slice(0, AT_A_TIME).map((_, worker) => work(worker)));
await collect();
sample('end');

async function work(worker: number): Promise<void> {
  // A worker uses its own namespaces in turn, so that the kernel can dismantle one while another is used.
  const own = order.namespaces.filter((_, i) => i % AT_A_TIME === worker);
  for (let life = next++; life < order.lives; life = next++) {
    await live(life, own[life % own.length] ?? '');
    if (life % order.sampleEvery === order.sampleEvery - 1) sample(String(life + 1));
  }
}

async function live(life: number, netns: string): Promise<void> {
  const attachment: Attachment = {
    containerId: `soak-${life}`,
    netns,
    ifname: 'eth0',
    ...(order.ports
      ? {
          capabilityArgs: {
            portMappings: [{ hostPort: 20_000 + (life % 10_000), containerPort: 80, protocol: 'tcp' }],
          },
        }
      : {}),
  };
  const dice = scatter(life);
  alive.add(attachment.containerId);
  if (dice < FAILING) await fail(attachment);
  else if (dice < FAILING + ABANDONED) await abandon(attachment, dice % 2 === 0 && !order.keepsRecords);
  else await liveOrdinarily(attachment, scatter(life + 1_000_003));
  alive.delete(attachment.containerId);
}

async function liveOrdinarily(attachment: Attachment, dice: number): Promise<void> {
  if (!(await expectOk('ADD', addNetwork(list, attachment, runtime)))) return void (await del(attachment));
  if (dice < CHECKED) await expectOk('CHECK', checkNetwork(list, attachment, runtime));
  if (dice >= 100 - ADDED_TWICE) await expectFailure(addNetwork(list, attachment, runtime));
  await del(attachment);
  if (dice % 5 === 0 && dice < DELETED_TWICE * 5) await del(attachment);
}

/** The last plugin fails: the earlier ones are undone at once, and half of the runtimes send a DEL nevertheless. */
async function fail(attachment: Attachment): Promise<void> {
  await expectFailure(addNetwork(broken, attachment, runtime));
  if (attachment.containerId.endsWith('1')) await del(attachment);
}

/** The runtime forgets the attachment; sometimes its record is lost as well. GC finds it anyway. */
async function abandon(attachment: Attachment, recordLost: boolean): Promise<void> {
  if (!(await expectOk('ADD', addNetwork(list, attachment, runtime)))) return void (await del(attachment));
  tally.abandoned++;
  if (recordLost) fs.rmSync(`${order.cacheDir}/results/${list.name}-${attachment.containerId}-eth0`);
  alive.delete(attachment.containerId);
  await collect();
}

/** One at a time. Later callers wait and collect again, since the running GC may have started too early for them. */
async function collect(): Promise<void> {
  while (collecting !== undefined) await collecting;
  const valid = [...alive].map(containerID => ({ containerID, ifname: 'eth0' }));
  collecting = expectOk('GC', collectGarbage(list, { valid }, runtime));
  await collecting;
  collecting = undefined;
}

async function del(attachment: Attachment): Promise<void> {
  await expectOk('DEL', deleteNetwork(list, attachment, runtime));
}

async function expectOk(verb: 'ADD' | 'CHECK' | 'DEL' | 'GC', call: Promise<unknown>): Promise<boolean> {
  tally[verb]++;
  try {
    await call;
    return true;
  } catch (error) {
    tally.problems.push(`${verb}: ${error}`);
    return false;
  }
}

async function expectFailure(call: Promise<JsonObject>): Promise<void> {
  tally.failing++;
  try {
    await call;
    tally.problems.push('ADD: succeeded although it had to fail');
  } catch {
    // As it should.
  }
}

function sample(lives: string): void {
  Bun.gc(true);
  const descriptors = fs.readdirSync('/proc/self/fd').length;
  sayLine({
    lives,
    descriptors,
    memoryMb: Math.round(process.memoryUsage.rss() / 2 ** 20),
    children: childrenOf(process.pid).length,
    ...tally,
  });
}

/** A number below 100 for each life, evenly distributed and the same in every run (the finalizer of MurmurHash3). */
function scatter(n: number): number {
  let hash = Math.imul(n ^ (n >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) % 100;
}

function brokenLink(): JsonObject {
  return { type: 'tuning', sysctl: { 'net.core.no_such_key': '1' }, dataDir: order.tuningDir };
}
