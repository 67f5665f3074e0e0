// Is a pod of the delegate runner checked once, by its own policy, and not while a process attaches or detaches it?

import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { writeEntry } from '../../../src/attachments/entries.ts';
import type { HeldKnown } from '../../../src/attachments/hold.ts';
import { cacheFileOf, keyOf } from '../../../src/cni/attachment.ts';
import { parseCniArgs } from '../../../src/cni/env.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { addPod } from '../../../src/delegate/add.ts';
import {
  attachmentLister,
  isPodHeld,
  podLister,
  type WatchedAttachment,
  withPods,
} from '../../../src/watch/attachments.ts';
import { type CheckOutcome, examine } from '../../../src/watch/examine.ts';
import { policyOf } from '../../../src/watch/settings.ts';
import { KEY, makePod, makeRunner, type TestRunner } from '../../helpers/delegates.ts';
import { mustClaim } from '../../helpers/journal.ts';
import { makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

const PARTS = [
  { network: 'one', containerId: 'c1', ifname: 'eth0' },
  { network: 'two', containerId: 'c1', ifname: 'net1' },
];
const [WHOLE, ONE, TWO] = [KEY, ...PARTS].map(keyOf) as [string, string, string];

let chain: NoopChain;
let runner: TestRunner;
let list: () => Map<string, WatchedAttachment>;
beforeEach(async () => {
  chain = makeNoopChain();
  const network = (name: string, more: JsonObject = {}): JsonObject => ({
    cniVersion: '1.1.0',
    name,
    plugins: [chain.noop(name)],
    ...more,
  });
  const delegates = [network('one'), network('two', { catena: { watch: 'observe' } })];
  runner = makeRunner(chain, { delegates });
  const { podsDir, callerCacheDir, runtime } = runner;
  await addPod(runner, makePod());
  keep([{ type: 'catena' }]);
  const attachments = attachmentLister([runtime.stateDir], callerCacheDir, () => false);
  const pods = podLister(podsDir);
  list = () => withPods(attachments(), pods());
});
afterEach(() => chain.dispose());

/** The runtime's cached result. */
function keep(plugins: readonly JsonObject[], more: JsonObject = {}): void {
  const source = JSON.stringify({ cniVersion: '1.1.0', name: KEY.network, ...more, plugins });
  const inputs = { netns: '/proc/self/ns/net', args: parseCniArgs(''), capabilityArgs: {}, source };
  writeEntry(runner.callerCacheDir, { ...KEY, ...inputs, result: { cniVersion: '1.1.0' } });
}

const inParts = () => [...list().values()].flatMap(one => (one.isCheckedInParts ? one.key : []));

describe('the attachment of the runtime', () => {
  test('is checked by its networks, which know the pod', () => {
    const found = list();
    expect([...found.keys()].sort()).toEqual([ONE, WHOLE, TWO].sort());
    expect(inParts()).toEqual([WHOLE]);
    for (const key of [WHOLE, ONE, TWO]) expect(found.get(key)?.pod?.id).toEqual(KEY);
  });

  test('is checked itself if its list has more plugins, or a network is not listed', () => {
    keep([{ type: 'catena' }, { type: 'tuning' }]);
    expect(inParts()).toEqual([]);
    keep([{ type: 'catena' }]);
    expect(inParts()).toEqual([WHOLE]);
    fs.rmSync(cacheFileOf(runner.runtime.cacheDir, PARTS[1] as (typeof PARTS)[number]));
    expect(inParts()).toEqual([]);
  });

  test('is checked itself without a record of the pod', () => {
    fs.rmSync(cacheFileOf(runner.podsDir, KEY));
    expect(inParts()).toEqual([]);
    expect(list().get(ONE)?.pod).toBeUndefined();
  });
});

test("the policy of the runner's list counts for networks that name none", () => {
  const policies = (of: ReadonlyMap<string, string> = new Map()) =>
    [ONE, TWO].map(key => policyOf(list().get(key) as WatchedAttachment, of, 'off'));
  expect(policies()).toEqual(['off', 'observe']);
  keep([{ type: 'catena' }], { catena: { watch: 'repair' } });
  expect(policies()).toEqual(['repair', 'observe']);
  expect(policies(new Map([['outer', '{}']]))).toEqual(['off', 'observe']);
  expect(policies(new Map([['outer', '{"catena":{"watch":"repair"}}']]))).toEqual(['repair', 'observe']);
});

describe('while a process detaches the pod', () => {
  /** A DEL of the runner. */
  const claim = () => mustClaim(runner.podsDir, KEY);

  /** @param during what happens while a plugin finds that something is missing */
  async function examineAll(during: () => void = () => {}): Promise<[CheckOutcome['state'][], number]> {
    let checks = 0;
    const runtime = {
      ...runner.runtime,
      cacheDir: runner.callerCacheDir,
      find: (type: string) => `/somewhere/${type}`,
      exec: () => {
        checks += 1;
        during();
        return { exitCode: 1, stdout: '{"code":100,"msg":"gone"}' };
      },
    };
    const states: CheckOutcome['state'][] = [];
    const found = list();
    for (const key of [ONE, TWO, WHOLE])
      states.push((await examine(found.get(key) as WatchedAttachment, runtime, async () => {})).state);
    return [states, checks];
  }

  test('neither it nor its networks are checked', async () => {
    expect(await examineAll()).toEqual([['drifted', 'drifted', 'drifted'], 4]);
    const { id, podsDir } = list().get(ONE)?.pod ?? { id: KEY, podsDir: '' };
    const pod = { id, podsDir, source: undefined };
    expect(isPodHeld(pod)).toBe(false);
    claim();
    expect(await examineAll()).toEqual([['passed over', 'passed over', 'passed over'], 0]);
    expect(isPodHeld(pod)).toBe(true);
  });

  test('a CHECK that was running when it began reports nothing', async () => {
    let claimed: HeldKnown | undefined;
    const [states, checks] = await examineAll(() => {
      claimed ??= claim();
    });
    expect([states, checks]).toEqual([['passed over', 'passed over', 'passed over'], 1]);
    claimed?.fail([]);
    claimed?.release();
  });

  test('a DEL that failed leaves them alone, too: it will be tried again', async () => {
    const failed = claim();
    failed.fail([new Error('busy')]);
    failed.release();
    expect((await examineAll())[1]).toBe(0);
  });

  test('a damaged record of the pod keeps its networks from nothing', async () => {
    const file = path.resolve(cacheFileOf(runner.podsDir, KEY));
    const found = list();
    fs.writeFileSync(file, 'x');
    expect(isPodHeld(found.get(ONE)?.pod ?? { id: KEY, podsDir: runner.podsDir, source: undefined })).toBe(
      false,
    );
    expect((await examineAll())[0]).toEqual(['drifted', 'drifted', 'drifted']);
  });
});
