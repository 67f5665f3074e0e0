import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { CLAIM_ARG } from '../../../src/cni/env.ts';
import { ErrorCode } from '../../../src/cni/errors.ts';
import type { JsonObject } from '../../../src/cni/json.ts';
import { addPod } from '../../../src/delegate/add.ts';
import type { Cluster } from '../../../src/delegate/cluster.ts';
import { deletePod } from '../../../src/delegate/delete.ts';
import { openCluster } from '../../../src/delegate/kubernetes.ts';
import { findPod, KEY, makePod, makeRunner } from '../../helpers/delegates.ts';
import { type ApiServer, startApiServer } from '../../helpers/kubernetes.ts';
import { makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';
import { describeNeeding, requires } from '../../helpers/skip.ts';

const POD = makePod({ args: 'K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web' });

describeNeeding(
  'a claim of addresses',
  () => {
    let dir: string;
    let api: ApiServer;
    let cluster: Cluster;
    let chain: NoopChain;
    beforeAll(async () => {
      dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-claims-'));
      api = await startApiServer(dir);
      cluster = await openCluster({ kubeconfig: api.kubeconfig, timeoutMs: 10_000 });
    });
    beforeEach(() => {
      chain = makeNoopChain();
    });
    afterEach(() => {
      chain.dispose();
      api.answer(undefined);
      api.objects.clear();
      Object.assign(api.claimKind, { hasStatus: true, required: ['ips'] });
    });
    afterAll(async () => {
      await api.close();
      fs.rmSync(dir, { recursive: true });
    });

    /** A network whose plugin reports the address, and says which claim its pod names. */
    const network = (name: string, ifname: string, addresses: readonly string[], claim?: string) => {
      const result = {
        cniVersion: '1.1.0',
        interfaces: [{ name: `veth-${ifname}` }, { name: ifname, sandbox: '/proc/self/ns/net' }],
        ips: addresses.map(address => ({ address, interface: 1 })),
      };
      const more = { capabilities: { ips: true } };
      const config = {
        cniVersion: '1.1.0',
        name,
        plugins: [chain.noop(name, { ReportResult: result }, more)],
      };
      return { name, config, ...(claim === undefined ? {} : { 'ipam-claim-reference': claim }) };
    };
    const runnerOf = (networks: JsonObject[], more = {}) =>
      makeRunner(chain, { delegates: networks }, { claims: async () => cluster, ...more });
    const asked = () => chain.calls().map(({ env, request }) => [env.CNI_ARGS, request.runtimeConfig]);

    test('that holds no address gets those that the network assigned', async () => {
      api.addClaim('ns', 'web', { spec: { network: 'lan', interface: 'net1' } });
      const lan = network('lan', 'net1', ['10.2.0.5/24', 'fd02::5/64'], 'web');
      await addPod(runnerOf([network('main', 'eth0', ['10.1.0.2/24']), lan]), POD);
      expect(api.claimed('ns', 'web')).toEqual(['10.2.0.5/24', 'fd02::5/64']);
      const { method, path: at, contentType } = api.requests.at(-1) ?? {};
      expect({ method, at, contentType }).toEqual({
        method: 'PATCH',
        at: '/apis/k8s.cni.cncf.io/v1alpha1/namespaces/ns/ipamclaims/web/status',
        contentType: 'application/merge-patch+json',
      });
    });

    describe('of a KubeVirt machine that moves', () => {
      const labels = { 'kubevirt.io/created-by': 'vmi' };
      const annotations = { 'kubevirt.io/domain': 'vm' };
      const target = makePod({ args: 'K8S_POD_NAMESPACE=ns;K8S_POD_NAME=target;K8S_POD_UID=t' });
      const again = { env: {}, stdin: '{}' };
      let quiet: string[];
      const moving = (more = {}) =>
        runnerOf([network('main', 'eth0', ['10.1.0.2/24']), network('lan', 'net1', ['10.2.0.5/24'], 'web')], {
          cluster: async () => cluster,
          fetchAnnotations: async () => annotations,
          again,
          isServed: true,
          beginQuiet: async (ifnames: string[]) => void quiet.push(`begin ${ifnames.join('+')}`),
          endQuiet: async (ifnames: string[]) => void quiet.push(`end ${ifnames.join('+')}`),
          ...more,
        });
      const joins = () =>
        chain
          .calls()
          .map(
            ({ request }) =>
              (request.args as { cni?: Record<string, { joins?: boolean }> })?.cni?.[CLAIM_ARG]?.joins,
          );

      beforeEach(() => {
        quiet = [];
        api.addClaim('ns', 'web', { spec: {}, status: { ips: ['10.2.0.5/24'] } });
        api.addPod('ns', 'source', { uid: 's', labels, annotations });
        api.addPod('ns', 'target', {
          uid: 't',
          annotations,
          labels: { ...labels, 'kubevirt.io/migrationJobUID': 'job' },
        });
      });

      test('is joined by the pod that it moves to, whose network is quiet from before it exists', async () => {
        const runner = moving();
        await addPod(runner, target);
        expect(joins()).toEqual([undefined, true]);
        expect(quiet).toEqual(['begin net1']);
        expect(findPod(runner)?.machine).toEqual({ ifnames: ['net1'], moves: true, call: again });
        await deletePod(runner, KEY, '');
        expect(quiet).toEqual(['begin net1', 'end ']);
      });

      test('has every failure of DEL told, also if what is quiet in it stays so', async () => {
        const endQuiet = () => Promise.reject(new Error('no answer'));
        const runner = moving({ endQuiet });
        await addPod(runner, target);
        chain.rescript('lan', { ReportError: 'busy', ReportErrorCode: 101 });
        await expect(deletePod(runner, KEY, '')).rejects.toThrow(/busy.*no answer/);
      });

      test.each<[string, () => void]>([
        ['once the other pod is gone', () => api.objects.delete('/api/v1/namespaces/ns/pods/source')],
        ['of another uid', () => api.addPod('ns', 'target', { uid: 'later', labels, annotations })],
      ])('is not joined %s', async (_, prepare) => {
        prepare();
        await addPod(moving(), target);
        expect(joins()).toEqual([undefined, undefined]);
        expect(quiet).toEqual([]);
      });

      test('is refused without a daemon, which alone would let it speak', async () => {
        const refused = { code: ErrorCode.tryAgainLater, message: expect.stringContaining('attach net1') };
        await expect(addPod(moving({ isServed: false }), target)).rejects.toMatchObject(refused);
        expect([quiet, chain.calls()]).toEqual([[], []]);
      });

      test('can leave a pod that was made while no daemon ran', async () => {
        const source = makePod({ args: 'K8S_POD_NAMESPACE=ns;K8S_POD_NAME=source;K8S_POD_UID=s' });
        const runner = moving({ isServed: false });
        await addPod(runner, source);
        expect(findPod(runner)?.machine).toEqual({ ifnames: ['net1'], moves: false, call: again });
      });

      test('leaves nothing quiet when a network fails', async () => {
        const beginQuiet = () => Promise.reject(new Error('no nf_tables'));
        const stuck = moving({ beginQuiet, endQuiet: () => Promise.reject(new Error('nor now')) });
        await expect(addPod(stuck, target)).rejects.toThrow('no nf_tables');
        const failing = moving({ beginQuiet });
        await expect(addPod(failing, target)).rejects.toThrow('no nf_tables');
        expect(quiet).toEqual(['end ']);
        expect(findPod(failing)).toBeUndefined();
        expect(chain.calls()).toEqual([]);
      });
    });

    test('that holds addresses has them requested from the network, and does not change', async () => {
      api.addClaim('ns', 'web', { spec: { network: 'lan' }, status: { ips: ['10.2.0.5/24'] } });
      await addPod(runnerOf([network('lan', 'eth0', ['10.2.0.5/24'], 'web')]), POD);
      expect(asked()).toEqual([[expect.stringContaining('IP=10.2.0.5/24'), { ips: ['10.2.0.5/24'] }]]);
      expect(api.requests.at(-1)?.method).toBe('GET');
    });

    test('is named to the plugins of its network, and no pod names one itself', async () => {
      api.addClaim('ns', 'web', { spec: { network: 'lan' }, status: { ips: ['10.2.0.5/24'] } });
      const other = { namespace: 'ns', name: 'other', uid: 'uid-other' };
      const forged = { [CLAIM_ARG]: other, [CLAIM_ARG.toUpperCase()]: other, mine: 1 };
      const lan = { ...network('lan', 'net1', ['10.2.0.5/24'], 'web'), 'cni-args': forged };
      const main = { ...network('main', 'eth0', ['10.1.0.2/24']), 'cni-args': forged };
      await addPod(runnerOf([main, lan]), POD);
      const given = chain
        .calls()
        .map(({ request }) => (request.args as { cni?: JsonObject } | undefined)?.cni);
      expect(given).toEqual([
        { mine: 1 },
        { mine: 1, [CLAIM_ARG]: { namespace: 'ns', name: 'web', uid: 'uid-web' } },
      ]);
    });

    test('that holds no address, and requests some, gets those', async () => {
      api.addClaim('ns', 'web', { spec: { network: 'lan', ipRequests: ['10.2.0.9/24'] } });
      await addPod(runnerOf([network('lan', 'eth0', ['10.2.0.9/24'], 'web')]), POD);
      expect(asked()).toEqual([[expect.any(String), { ips: ['10.2.0.9/24'] }]]);
      expect(api.claimed('ns', 'web')).toEqual(['10.2.0.9/24']);
    });

    test('that asks for more addresses than a pod may is refused, before anything is changed', async () => {
      const ipRequests = Array.from({ length: 33 }, (_, i) => `10.2.0.${i + 1}/24`);
      api.addClaim('ns', 'web', { spec: { network: 'lan', ipRequests } });
      await expect(addPod(runnerOf([network('lan', 'eth0', ipRequests, 'web')]), POD)).rejects.toMatchObject({
        code: 7,
        message: expect.stringContaining('33 addresses, more than 32'),
      });
      expect(chain.calls()).toEqual([]);
    });

    test.each([
      ['has no subresource', { hasStatus: false }],
      ['wants to know the pod', { required: ['ips', 'ownerPod'] }],
    ])('of a kind that %s is filled as well', async (_, kind) => {
      Object.assign(api.claimKind, kind);
      api.addClaim('ns', 'web', { spec: { network: 'lan' } });
      await addPod(runnerOf([network('lan', 'eth0', ['10.2.0.5/24'], 'web')]), POD);
      expect(api.claimed('ns', 'web')).toEqual(['10.2.0.5/24']);
    });

    test('that cannot be filled fails the ADD, which is undone', async () => {
      api.addClaim('ns', 'web', { spec: { network: 'lan' } });
      const runner = runnerOf([network('main', 'eth0', []), network('lan', 'net1', ['10.2.0.5/24'], 'web')], {
        claims: async () => ({ ...cluster, findClaim: faster }),
      });
      // Another pod fills it in between.
      async function faster(namespace: string, name: string) {
        const claim = await cluster.findClaim(namespace, name);
        api.addClaim(namespace, name, { spec: { network: 'lan' }, status: { ips: ['10.2.0.7/24'] } });
        return claim;
      }
      await expect(addPod(runner, POD)).rejects.toMatchObject({
        code: 11,
        message: expect.stringContaining('has been modified'),
      });
      expect(chain.order()).toEqual(['ADD main', 'ADD lan', 'DEL lan', 'DEL main']);
      expect(api.claimed('ns', 'web')).toEqual(['10.2.0.7/24']);
    });

    test('that was filled by an ADD that failed later is emptied again', async () => {
      api.addClaim('ns', 'web', { spec: { network: 'lan' } });
      const publish = async () => {
        throw new Error('no API server');
      };
      const runner = runnerOf([network('lan', 'eth0', ['10.2.0.5/24'], 'web')], { publish });
      await expect(addPod(runner, POD)).rejects.toThrow('no API server');
      expect(api.claimed('ns', 'web')).toEqual([]);
    });

    test.each<[string, { spec?: object; status?: object } | undefined, number, string]>([
      ['is not there', undefined, 11, 'Cannot use IPAMClaim "ns/web": the cluster has no such claim'],
      ['is for another network', { spec: { network: 'wan' } }, 7, 'it is for network "wan", not "lan"'],
      ['holds no address', { status: { ips: ['x'] } }, 7, 'it lists "x", which is not an address'],
    ])('that %s fails the ADD before it changes anything', async (_, claim, code, problem) => {
      if (claim) api.addClaim('ns', 'web', claim);
      const runner = runnerOf([network('lan', 'eth0', ['10.2.0.5/24'], 'web')]);
      await expect(addPod(runner, POD)).rejects.toMatchObject({
        code,
        message: expect.stringContaining(problem),
      });
      expect(chain.order()).toEqual([]);
    });

    test('of a network that assigns no address fails the ADD', async () => {
      api.addClaim('ns', 'web', { spec: { network: 'lan' } });
      const runner = runnerOf([network('lan', 'eth0', [], 'web')]);
      await expect(addPod(runner, POD)).rejects.toThrow('network "lan" assigned no address');
      expect(chain.order()).toEqual(['ADD lan', 'DEL lan']);
    });

    test('cannot belong to two networks, nor to a container that is not a pod', async () => {
      api.addClaim('ns', 'web', {});
      const two = [network('lan', 'eth0', [], 'web'), network('wan', 'net1', [], 'web')];
      await expect(addPod(runnerOf(two), POD)).rejects.toThrow('two networks of the pod use it');
      await expect(addPod(runnerOf(two), makePod())).rejects.toThrow('the container is not a pod');
    });

    test('is refused when no cluster is configured', async () => {
      const runner = runnerOf([network('lan', 'eth0', [], 'web')], { claims: undefined });
      await expect(addPod(runner, POD)).rejects.toMatchObject({
        code: 7,
        message: 'Cannot use IPAMClaim "web": no cluster is configured; set "kubeconfig"',
      });
    });
  },
  requires('openssl'),
);
