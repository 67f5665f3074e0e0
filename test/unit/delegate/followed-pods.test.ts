// When does a daemon call the runner again for a pod?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { addPod } from '../../../src/delegate/add.ts';
import { type Cluster, MACHINE_ANNOTATION } from '../../../src/delegate/cluster.ts';
import { FollowedPods } from '../../../src/delegate/followed-pods.ts';
import { findPod, makePod, makeRunner } from '../../helpers/delegates.ts';
import { makeNoopChain } from '../../helpers/noop-chain.ts';
import { until } from '../../helpers/until.ts';

test('a moment in which the pods cannot be listed ends no daemon, and no change is lost', async () => {
  const chain = makeNoopChain();
  const delegates = [{ cniVersion: '1.1.0', name: 'first', plugins: [chain.noop('first')] }];
  const env = { CNI_ARGS: 'K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u' };
  const follow = { env, stdin: '{"cniVersion":"1.1.0"}' };
  const runner = makeRunner(chain, { delegates }, { follow });
  const { podsDir } = runner;
  fs.mkdirSync(podsDir, { recursive: true });
  const notes = path.join(podsDir, 'unsettled');
  fs.writeFileSync(notes, 'no directory');
  const problems: unknown[] = [];
  const calls: unknown[] = [];
  let looks = 0;
  const pods = new FollowedPods({
    podsDir,
    // Asked just before the change is looked at.
    isBusy() {
      looks += 1;
      return false;
    },
    log: (_level, _message, fields) => void problems.push(fields?.problem),
    call: async call => void calls.push(call.env),
  });
  try {
    const pod = { uid: 'u', version: '1', annotations: { 'k8s.v1.cni.cncf.io/networks': 'more' } };
    pods.changed('ns', 'web', pod);
    await until(() => looks > 0);
    expect(problems).toEqual([expect.stringContaining('ENOTDIR')]);
    fs.rmSync(notes);
    await addPod(runner, makePod());
    pods.changed('ns', 'web', pod);
    await until(() => calls.length > 0);
    expect(calls[0]).toEqual(env);
  } finally {
    await pods.stop();
    chain.dispose();
  }
});

test('while the ADD of a pod goes on, its annotation has no runner called', async () => {
  const chain = makeNoopChain();
  const done = path.join(chain.dir, 'done');
  const delegates = [
    { cniVersion: '1.1.0', name: 'first', plugins: [chain.noop('first', { WaitFor: done })] },
  ];
  const env = { CNI_ARGS: 'K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u' };
  const runner = makeRunner(chain, { delegates }, { follow: { env, stdin: '{"cniVersion":"1.1.0"}' } });
  const whileAdding: boolean[] = [];
  let looks = 0;
  const added = addPod(runner, makePod());
  await until(() => findPod(runner) !== undefined);
  const pods = new FollowedPods({
    podsDir: runner.podsDir,
    isBusy() {
      looks += 1;
      return false;
    },
    log() {},
    call: async () => void whileAdding.push(findPod(runner)?.record.phase !== 'attached'),
  });
  try {
    const annotations = { 'k8s.v1.cni.cncf.io/networks': 'more' };
    pods.changed('ns', 'web', { uid: 'u', version: '1', annotations });
    await until(() => looks > 3);
    // The daemon looks at every pod once, when it begins.
    expect(whileAdding.length).toBeLessThanOrEqual(1);
    fs.writeFileSync(done, '');
    await added;
    await until(() => whileAdding.includes(false));
  } finally {
    fs.writeFileSync(done, '');
    await pods.stop();
    chain.dispose();
  }
});

/** Pods of machines. @param isTarget they are on their way there */
async function machines(count: number, isTarget: boolean) {
  const chain = makeNoopChain();
  const result = {
    cniVersion: '1.1.0',
    interfaces: [{ name: 'veth0' }, { name: 'eth0', sandbox: '/proc/self/ns/net' }],
    ips: [{ address: '10.2.0.5/24', interface: 1 }],
  };
  const list = {
    cniVersion: '1.1.0',
    name: 'lan',
    plugins: [chain.noop('lan', { ReportResult: result }, { capabilities: { ips: true } })],
  };
  const delegates = [{ name: 'lan', config: list, ips: ['10.2.0.5/24'] }];
  const pod = {
    uid: 'u',
    version: '1',
    annotations: {},
    machine: { uid: 'm', isTarget, isActive: false },
  };
  const other = { uid: 'o', name: 'other', annotations: {}, isOver: false };
  const cluster = { findPod: async () => pod, findPodsOfMachine: async () => [other] };
  let podsDir = '';
  for (let i = 0; i < count; i++) {
    const args = `K8S_POD_NAMESPACE=ns;K8S_POD_NAME=vm-${i};K8S_POD_UID=u`;
    const again = { env: { CNI_ARGS: args }, stdin: '{"cniVersion":"1.1.0"}' };
    const runner = makeRunner(
      chain,
      { delegates },
      {
        ...{ again, isServed: true, cluster: async () => cluster as unknown as Cluster },
        fetchAnnotations: async () => ({ [MACHINE_ANNOTATION]: 'vm' }),
      },
    );
    await addPod(runner, makePod({ args, containerId: `c${i}` }));
    ({ podsDir } = runner);
  }
  return { chain, podsDir };
}

test('of machines that move, few ask the API server at the same time', async () => {
  const { chain, podsDir } = await machines(10, true);
  const called = new Set<string | undefined>();
  let [running, most] = [0, 0];
  const pods = new FollowedPods({
    podsDir,
    isBusy: () => false,
    log() {},
    async call({ env }) {
      most = Math.max(most, ++running);
      await Bun.sleep(10);
      called.add(env.CNI_ARGS);
      running -= 1;
      return undefined;
    },
  });
  try {
    await until(() => called.size === 10);
    expect(most).toBe(8);
  } finally {
    await pods.stop();
    chain.dispose();
  }
});

test('many pods that are asked for silence cost one look', async () => {
  const { chain, podsDir } = await machines(1, false);
  const aside = `${podsDir}.aside`;
  const calls: unknown[] = [];
  fs.renameSync(podsDir, aside);
  const pods = new FollowedPods({
    podsDir,
    isBusy: () => false,
    log() {},
    call: async ({ env }) => void calls.push(env.CNI_ARGS),
  });
  try {
    const annotations = { 'catena.cni.cncf.io/machine-left': 'uid 1' };
    for (let i = 0; i < 1_000; i++) pods.changed('ns', `vm-${i}`, { uid: 'u', version: '1', annotations });
    // A look at each of them would be over already.
    fs.renameSync(aside, podsDir);
    await until(() => calls.length > 0);
  } finally {
    await pods.stop();
    chain.dispose();
  }
});
