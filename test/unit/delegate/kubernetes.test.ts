import { afterAll, afterEach, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseCniArgs } from '../../../src/cni/cni-args.ts';
import type { Cluster, NetworkStatus } from '../../../src/delegate/cluster.ts';
import { publishStatus } from '../../../src/delegate/cluster-pod.ts';
import { isInCluster } from '../../../src/delegate/in-cluster.ts';
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
