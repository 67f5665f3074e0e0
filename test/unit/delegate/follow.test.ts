// Which networks come and go when an annotation has changed?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { readEntry } from '../../../src/attachments/entries.ts';
import { addPod } from '../../../src/delegate/add.ts';
import type { ClaimStore, Cluster } from '../../../src/delegate/cluster.ts';
import { followPod, planFollowing } from '../../../src/delegate/follow.ts';
import type { RecordedNetwork } from '../../../src/delegate/record.ts';
import type { Runner } from '../../../src/delegate/runner.ts';
import { selectByName } from '../../../src/delegate/selection.ts';
import type { WantedNetwork } from '../../../src/delegate/wanted.ts';
import { findPod, KEY, makePod, makeRunner } from '../../helpers/delegates.ts';
import { makeNoopChain } from '../../helpers/noop-chain.ts';

const has = (ifname: string, asked?: string): RecordedNetwork => ({
  label: ifname,
  network: ifname,
  ifname,
  source: '{}',
  args: [],
  capabilityArgs: {},
  ...(asked === undefined ? {} : { asked }),
});
const wants = (asked: string): WantedNetwork => ({
  selection: selectByName(asked),
  namespace: 'ns',
  byPod: true,
  asked,
});

test.each<[string, (string | undefined)[], string[], number[], string[]]>([
  ['nothing changes', [undefined, 'a', 'b'], ['b', 'a'], [], []],
  ['one comes', [undefined, 'a'], ['a', 'b'], [], ['b']],
  ['one goes', [undefined, 'a', 'b'], ['b'], [1], []],
  ['the default network and those of the configuration stay', [undefined, undefined], [], [], []],
  ['the same one twice', [undefined, 'a'], ['a', 'a'], [], ['a']],
  ['one of two equal ones goes', [undefined, 'a', 'a'], ['a'], [2], []],
])('%s', (_, present, wanted, going, coming) => {
  const networks = present.map((asked, i) => has(`net${i}`, asked));
  const found = planFollowing(networks, wanted.map(wants));
  expect(found.going.map(one => networks.indexOf(one))).toEqual(going);
  expect(found.coming.map(({ asked }) => asked ?? '')).toEqual(coming);
});

test('the entry of a network that comes is without the default route that it does not get', async () => {
  const chain = makeNoopChain();
  try {
    const routes = [{ dst: '0.0.0.0/0', gw: '10.1.0.1' }, { dst: '10.9.0.0/16' }];
    const ReportResult = { cniVersion: '1.1.0', routes };
    const listOf = (name: string) => ({
      cniVersion: '1.1.0',
      name,
      plugins: [chain.noop(name, { ReportResult })],
    });
    fs.mkdirSync(path.join(chain.dir, 'net.d'));
    fs.writeFileSync(path.join(chain.dir, 'net.d/two.conflist'), JSON.stringify(listOf('two')));
    let annotation = '';
    const annotations = () => ({ 'k8s.v1.cni.cncf.io/networks': annotation });
    const cluster = {
      findPod: async () => ({ uid: 'u', version: '1', annotations: annotations() }),
      replaceStatus: async () => true,
    } as unknown as Cluster;
    const runner = makeRunner(
      chain,
      { delegates: [listOf('one')] },
      {
        cluster: async () => cluster,
        fetchAnnotations: async () => annotations(),
        follow: { env: {}, stdin: '' },
      },
    );
    runner.present.set('eth0', [4]);
    const pod = makePod({ args: 'K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web' });
    await addPod(runner, pod);
    annotation = 'two';
    runner.present.set('net1', [4]);
    await followPod(runner, KEY, pod);
    expect(runner.changes).toEqual(['remove 4 net1']);
    const two = { network: 'two', containerId: 'c1', ifname: 'net1' };
    expect(readEntry(chain.runtime.cacheDir, two)?.result?.routes).toEqual(routes.slice(1));
  } finally {
    chain.dispose();
  }
});

/** A pod whose annotation selects a further network, which reports an address. */
async function attachLater(
  { claim, machine, ...fixed }: { claim?: string; machine?: object; 'kubevirt.io/domain'?: string },
  more: (runner: () => Runner) => Partial<Runner>,
  check: (follow: () => Promise<void>, runner: Runner) => Promise<void>,
): Promise<void> {
  const chain = makeNoopChain();
  try {
    const result = (ifname: string) => ({
      cniVersion: '1.1.0',
      interfaces: [{ name: ifname, sandbox: '/proc/self/ns/net' }],
      ips: [{ address: '10.1.0.5/24', interface: 0 }],
    });
    const listOf = (name: string, ifname: string) => ({
      cniVersion: '1.1.0',
      name,
      plugins: [chain.noop(name, { ReportResult: result(ifname) }, { capabilities: { ips: true } })],
    });
    fs.mkdirSync(path.join(chain.dir, 'net.d'));
    fs.writeFileSync(path.join(chain.dir, 'net.d/two.conflist'), JSON.stringify(listOf('two', 'net1')));
    const networks = 'k8s.v1.cni.cncf.io/networks';
    let annotations: Record<string, string> = fixed;
    const cluster = {
      findPod: async () => ({ uid: 'u', version: '1', annotations, machine }),
      replaceStatus: async () => true,
      addEvent: async () => {},
      findPodsOfMachine: async () => [{ uid: 'v', name: 'former', isOver: false, annotations: {} }],
    } as unknown as Cluster;
    const runner: Runner = makeRunner(
      chain,
      { delegates: [listOf('one', 'eth0')] },
      {
        cluster: async () => cluster,
        fetchAnnotations: async () => annotations,
        follow: { env: {}, stdin: 'again' },
        again: { env: {}, stdin: 'again' },
        ...more(() => runner),
      },
    );
    const pod = makePod({ args: 'K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web' });
    await addPod(runner, pod);
    const asked = { name: 'two', ...(claim ? { 'ipam-claim-reference': claim } : { ips: ['10.1.0.5'] }) };
    annotations = { ...fixed, [networks]: JSON.stringify([asked]) };
    await check(() => followPod(runner, KEY, pod), runner);
  } finally {
    chain.dispose();
  }
}

test('a network is not settled before its claim has the addresses: a process that dies then leaves it to be made again', async () => {
  const states: (string | undefined)[] = [];
  let isFailing = true;
  const claim = { namespace: 'ns', name: 'kept', uid: 'u', ips: [], requested: [] };
  const claims = (runner: () => Runner) => ({
    findClaim: async () => claim,
    fillClaim: async (filled: typeof claim) => {
      states.push(findPod(runner())?.networks.at(-1)?.state);
      if (isFailing) throw new Error('the API server is away');
      return filled;
    },
  });
  const more = (runner: () => Runner) => ({ claims: async () => claims(runner) as unknown as ClaimStore });
  await attachLater({ claim: 'kept' }, more, async (follow, runner) => {
    await expect(follow()).rejects.toThrow('the API server is away');
    expect(findPod(runner)?.networks).toHaveLength(1);
    isFailing = false;
    await follow();
    expect(new Set(states)).toEqual(new Set(['coming']));
    expect(findPod(runner)?.networks.map(({ state }) => state)).toEqual([undefined, undefined]);
  });
});

test('what joins a machine with addresses of its own falls silent with it', async () => {
  await attachLater(
    { 'kubevirt.io/domain': 'vm' },
    () => ({}),
    async (follow, runner) => {
      await follow();
      expect(findPod(runner)?.machine).toMatchObject({ ifnames: ['net1'], moves: false });
    },
  );
});

test('what belongs to a machine that is still on its way to the pod is not attached', async () => {
  const machine = { uid: 'm', isTarget: true, isActive: false };
  await attachLater(
    { 'kubevirt.io/domain': 'vm', machine },
    () => ({}),
    async (follow, runner) => {
      expect(await follow().catch(error => error.code)).toBe(11);
      expect(findPod(runner)?.networks).toHaveLength(1);
      Object.assign(machine, { isActive: true });
      await follow();
      expect(findPod(runner)?.networks).toHaveLength(2);
    },
  );
});

test('a change waits for whatever else adds networks to the container', async () => {
  const steps: string[] = [];
  const whileAlone: Runner['whileAlone'] = async (containerId, work) => {
    steps.push(`begin ${containerId}`);
    const done = await work();
    steps.push('end');
    return done;
  };
  await attachLater(
    {},
    () => ({ whileAlone }),
    async (follow, runner) => {
      await follow();
      expect(steps).toEqual(['begin c1', 'end']);
      expect(findPod(runner)?.networks).toHaveLength(2);
    },
  );
});
