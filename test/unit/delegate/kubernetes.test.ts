import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseCniArgs } from '../../../src/cni/env.ts';
import { type Cluster, isInCluster, type NetworkStatus } from '../../../src/delegate/cluster.ts';
import { publishStatus } from '../../../src/delegate/cluster-pod.ts';
import { openCluster } from '../../../src/delegate/kubernetes.ts';
import { type ApiServer, startApiServer } from '../../helpers/kubernetes.ts';
import { describeNeeding, requires } from '../../helpers/skip.ts';

test('isInCluster() needs address and service account', () => {
  expect(isInCluster({})).toBe(false);
  expect(isInCluster({ KUBERNETES_SERVICE_HOST: '10.0.0.1' })).toBe(false);
});

describeNeeding(
  'openCluster()',
  () => {
    let dir: string;
    let api: ApiServer;
    let cluster: Cluster;
    beforeAll(async () => {
      dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-api-'));
      api = await startApiServer(dir);
      cluster = await openCluster({ kubeconfig: api.kubeconfig, timeoutMs: 10_000 });
    });
    afterEach(() => api.answer(undefined));
    afterAll(async () => {
      await api.close();
      fs.rmSync(dir, { recursive: true });
    });

    test('finds definitions, over an authenticated connection', async () => {
      api.addDefinition('ns', 'net', { type: 'bridge' });
      expect(await cluster.findDefinition('ns', 'net')).toEqual({
        name: 'net',
        namespace: 'ns',
        config: '{"type":"bridge"}',
      });
      expect(await cluster.findDefinition('ns', 'other')).toBeUndefined();
      expect(api.requests.at(-1)).toMatchObject({ method: 'GET', token: 'secret-token' });
    });

    test('finds pods', async () => {
      api.addPod('ns', 'web', { uid: 'u', annotations: { a: 'b' } });
      expect(await cluster.findPod('ns', 'web')).toMatchObject({ uid: 'u', annotations: { a: 'b' } });
      expect(await cluster.findPod('ns', 'gone')).toBeUndefined();
    });

    // The API server of the other tests is Kubernetes 1.20.2, which lacks resource.k8s.io/v1: its objects are served as that version has them.
    describe('listClaimedDevices()', () => {
      const [API, POD] = ['/apis/resource.k8s.io/v1', '/api/v1/namespaces/ns/pods/dra'];
      const pod = { namespace: 'ns', name: 'dra', uid: 'u' };
      const put = (path: string, object: object) => api.collections.put(path, { metadata: {}, ...object });
      const putPod = (spec: object, status: object) =>
        put(POD, {
          metadata: { name: 'dra', namespace: 'ns', uid: 'u' },
          spec: { nodeName: 'node', ...spec },
          status,
        });
      const result = (device: string) => ({ request: 'r', driver: 'nic.example.com', pool: 'node', device });
      const claim = (name: string, devices: string[], uid = 'u') =>
        put(`${API}/namespaces/ns/resourceclaims/${name}`, {
          status: {
            allocation: { devices: { results: devices.map(result) } },
            reservedFor: [{ resource: 'pods', name: 'dra', uid }],
          },
        });
      const device = (name: string, resource?: string) => ({
        name,
        attributes: {
          ...(resource && { 'k8s.cni.cncf.io/resourceName': { string: resource } }),
          'k8s.cni.cncf.io/deviceID': { string: `0000:01:${name}` },
          'nic.example.com/numa': { int: 1 },
        },
      });
      const slice = (name: string, node: string, devices: object[]) =>
        put(`${API}/resourceslices/${name}`, {
          spec: { driver: 'nic.example.com', pool: { name: node }, nodeName: node, devices },
        });
      beforeEach(() => {
        slice('one', 'node', [device('a', 'x/net'), device('b', 'x/net')]);
        slice('two', 'node', [device('c', 'x/fast'), device('gpu')]);
        slice('other', 'other', [device('a', 'x/foreign')]);
        claim('made-1', ['c', 'gpu']);
        claim('made-2', ['b', 'a']);
        putPod(
          {
            resourceClaims: [
              { name: 'first' },
              { name: 'second', resourceClaimName: 'made-2' },
              { name: 'none' },
            ],
            containers: [
              { resources: { claims: [{ name: 'second' }] } },
              { resources: { claims: [{ name: 'first' }] } },
            ],
          },
          {
            resourceClaimStatuses: [
              { name: 'none' },
              { name: 'first', resourceClaimName: 'made-1' },
              { name: 'second', resourceClaimName: 'made-2' },
            ],
          },
        );
      });
      afterEach(() => {
        for (const path of [...api.objects.keys()]) if (path.startsWith(API)) api.collections.remove(path);
      });

      test('has those of all claims in the order of the containers, and none that is not for networks', async () => {
        expect(await cluster.listClaimedDevices(pod)).toEqual([
          { resource: 'x/net', id: '0000:01:b' },
          { resource: 'x/net', id: '0000:01:a' },
          { resource: 'x/fast', id: '0000:01:c' },
        ]);
      });

      test('has those of an extended resource; a pod without claims costs one request', async () => {
        putPod({}, { extendedResourceClaimStatus: { resourceClaimName: 'made-2', requestMappings: [] } });
        expect((await cluster.listClaimedDevices(pod)).map(({ id }) => id)).toEqual([
          '0000:01:b',
          '0000:01:a',
        ]);
        putPod({ resourceClaims: [] }, {});
        const before = api.requests.length;
        expect(await cluster.listClaimedDevices(pod)).toEqual([]);
        expect(api.requests.length - before).toBe(1);
      });

      test.each<[string, () => void, number, string]>([
        [
          'of no devices',
          () => claim('made-2', []),
          7,
          'its ResourceClaim "made-2" is allocated without devices',
        ],
        [
          'of another pod',
          () => claim('made-2', ['a'], 'v'),
          7,
          'its ResourceClaim "made-2" is not reserved for the pod',
        ],
        [
          'that is gone',
          () => api.collections.remove(`${API}/namespaces/ns/resourceclaims/made-2`),
          11,
          'its ResourceClaim "made-2" does not exist',
        ],
        [
          'that is not allocated',
          () => put(`${API}/namespaces/ns/resourceclaims/made-2`, { status: {} }),
          11,
          'its ResourceClaim "made-2" is not allocated',
        ],
        [
          'of another shape',
          () =>
            put(`${API}/namespaces/ns/resourceclaims/made-2`, {
              status: { allocation: { devices: { results: 'all' } } },
            }),
          7,
          'its ResourceClaim "made-2" is not what this version can read',
        ],
        [
          'without an object yet',
          () => putPod({ resourceClaims: [{ name: 'first' }] }, {}),
          11,
          'its status does not say which object its claim "first" is',
        ],
        [
          'on a server without the kind',
          () => {
            for (const name of ['one', 'two', 'other'])
              api.collections.remove(`${API}/resourceslices/${name}`);
          },
          7,
          'the pod has claims, and the cluster has no "resource.k8s.io/v1"',
        ],
        [
          'in a slice of another shape',
          () => put(`${API}/resourceslices/one`, { spec: { driver: 1, nodeName: 'node' } }),
          7,
          'a ResourceSlice is not what this version can read',
        ],
      ])('has an error for a claim %s', async (_, prepare, code, text) => {
        prepare();
        await expect(cluster.listClaimedDevices(pod)).rejects.toMatchObject({
          code,
          message: `Cannot find the claimed devices of pod "ns/dra": ${text}`,
        });
      });
    });

    test('finds the pods of a KubeVirt machine, and which of them it moves to', async () => {
      const labels = { 'kubevirt.io/created-by': 'vmi', 'kubevirt.io/nodeName': 'former' };
      api.addPod('ns', 'source', { uid: 's', labels });
      api.addPod('ns', 'target', { uid: 't', labels: { ...labels, 'kubevirt.io/migrationJobUID': 'job' } });
      api.addPod('ns', 'another', { uid: 'o', labels: { 'kubevirt.io/created-by': 'vmi-2' } });
      expect((await cluster.findPod('ns', 'another'))?.machine).toMatchObject({
        uid: 'vmi-2',
        isTarget: false,
      });
      expect((await cluster.findPod('ns', 'target'))?.machine).toEqual({
        uid: 'vmi',
        isTarget: true,
        isActive: false,
      });
      const path = '/api/v1/namespaces/ns/pods/source';
      api.collections.put(path, { ...api.objects.get(path), status: { phase: 'Succeeded' } });
      expect(await cluster.findPodsOfMachine('ns', 'vmi')).toEqual([
        { uid: 's', name: 'source', annotations: {}, isOver: true },
        { uid: 't', name: 'target', annotations: {}, isOver: false },
      ]);
      const isActive = async (metadata: object) => {
        api.addPod('ns', 'target', { uid: 't', ...metadata });
        return (await cluster.findPod('ns', 'target'))?.machine?.isActive;
      };
      const target = { ...labels, 'kubevirt.io/migrationJobUID': 'job' };
      expect(await isActive({ labels: { ...target, 'kubevirt.io/nodeName': 'node' } })).toBe(true);
      // As KubeVirt's migration controller writes it: before the label.
      const ready = { 'kubevirt.io/migration-target-ready-timestamp': '2026-11-27 19:30:00 +0000 UTC' };
      expect(await isActive({ labels: target, annotations: ready })).toBe(true);
      expect(await isActive({ labels: target })).toBe(false);
    });

    test('keeps its connection, and makes another one when the server has closed it', async () => {
      const own = await openCluster({ kubeconfig: api.kubeconfig, timeoutMs: 10_000 });
      api.addPod('ns', 'kept', { uid: 'u' });
      const before = api.connections;
      const use = async () => {
        expect(await own.findPod('ns', 'kept')).toMatchObject({ uid: 'u' });
        expect(await own.setStatus('ns', 'kept', [])).toBe(true);
      };
      for (let i = 0; i < 3; i++) await use();
      expect(api.connections - before).toBe(1);
      api.answer('cut');
      await use();
      expect(api.connections - before).toBe(2);
    });

    test('writes the status with a merge patch, and nothing else', async () => {
      api.addPod('ns', 'web', { annotations: { kept: 'yes' } });
      await cluster.setStatus('ns', 'web', [{ name: 'net', dns: {}, default: true }]);
      const { method, path: at, contentType, body } = api.requests.at(-1) ?? {};
      expect({ method, at, contentType }).toEqual({
        method: 'PATCH',
        at: '/api/v1/namespaces/ns/pods/web/status',
        contentType: 'application/merge-patch+json',
      });
      expect(Object.keys(JSON.parse(body ?? ''))).toEqual(['metadata']);
      const annotations = api.annotations('ns', 'web');
      const { kept, 'k8s.v1.cni.cncf.io/network-status': status } = annotations;
      expect(annotations['k8s.v1.cni.cncf.io/networks-status']).toBe(status);
      expect({ kept, status: JSON.parse(status) }).toEqual({
        kept: 'yes',
        status: [{ name: 'net', dns: {}, default: true }],
      });
      await cluster.setStatus('ns', 'web', undefined);
      expect(api.annotations('ns', 'web')).toEqual({ kept: 'yes' });
      expect(await cluster.setStatus('ns', 'gone', [])).toBe(false);
    });

    test('leaves the status of a later pod of that name alone', async () => {
      const pod = (uid: string) => ({
        ...{ containerId: 'c1', netns: '/n', ifname: 'eth0', capabilityArgs: {} },
        args: parseCniArgs(`K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_UID=${uid}`),
      });
      const publish = (uid: string, status: NetworkStatus[] | undefined) =>
        publishStatus(async () => cluster, pod(uid), status);
      const seen = () => api.annotations('ns', 'web-0')['k8s.v1.cni.cncf.io/network-status'];
      await expect(publish('old', [])).rejects.toMatchObject({ code: 3 });
      await publish('old', undefined);

      api.addPod('ns', 'web-0', { uid: 'new', annotations: {} });
      await expect(publish('old', [])).rejects.toMatchObject({
        code: 11,
        message:
          'Cannot write network status of pod "ns/web-0": the cluster has one with uid "new", not "old"',
      });
      expect(seen()).toBeUndefined();
      await publish('new', []);
      expect(seen()).toBe('[]');
      await publish('old', undefined);
      expect(seen()).toBe('[]');

      // What stands for a static pod has a uid of its own.
      api.addPod('ns', 'web-0', { uid: 'mirror', annotations: { 'kubernetes.io/config.source': 'file' } });
      await publish('static', []);
      expect(seen()).toBe('[]');
      await publish('static', undefined);
      expect(seen()).toBeUndefined();
    });

    test.each([
      [500, 11],
      [503, 11],
      [429, 11],
      [409, 11],
      [403, 999],
    ])('gives status %d code %d', async (status, code) => {
      api.answer(status);
      await expect(cluster.findPod('ns', 'web')).rejects.toMatchObject({
        code,
        message: `Cannot use the Kubernetes API: forced ${status}`,
      });
    });

    test('gives a server that does not answer, or does not exist, code 11', async () => {
      const hasty = await openCluster({ kubeconfig: api.kubeconfig, timeoutMs: 200 });
      api.answer('hang');
      await expect(hasty.findPod('ns', 'web')).rejects.toMatchObject({
        code: 11,
        message: 'Cannot reach the Kubernetes API: it did not reply within 0.2 s',
      });
      const elsewhere = path.join(dir, 'elsewhere');
      fs.writeFileSync(
        elsewhere,
        fs.readFileSync(api.kubeconfig, 'utf8').replace(api.url, 'https://127.0.0.1:1'),
      );
      const absent = await openCluster({ kubeconfig: elsewhere, timeoutMs: 10_000 });
      await expect(absent.findPod('ns', 'web')).rejects.toMatchObject({ code: 11 });
    });

    test('does not talk to a server with another certificate', async () => {
      const untrusted = path.join(dir, 'untrusted');
      const text = fs.readFileSync(api.kubeconfig, 'utf8').replace(/ *certificate-authority-data.*\n/, '');
      fs.writeFileSync(untrusted, text);
      const before = api.requests.length;
      const doubtful = await openCluster({ kubeconfig: untrusted, timeoutMs: 10_000 });
      await expect(doubtful.findPod('ns', 'web')).rejects.toMatchObject({ code: 11 });
      expect(api.requests).toHaveLength(before);
    });

    test.each([
      ['is not there', undefined],
      ['is broken', '{'],
      ['has no cluster', 'apiVersion: v1\nkind: Config\n'],
    ])('gives a kubeconfig that %s code 7', async (_, text) => {
      const kubeconfig = path.join(dir, 'broken');
      fs.rmSync(kubeconfig, { force: true });
      if (text !== undefined) fs.writeFileSync(kubeconfig, text);
      await expect(openCluster({ kubeconfig, timeoutMs: 1000 })).rejects.toMatchObject({
        code: 7,
        message: expect.stringContaining(`Cannot use kubeconfig "${kubeconfig}"`),
      });
    });
  },
  requires('openssl'),
);
