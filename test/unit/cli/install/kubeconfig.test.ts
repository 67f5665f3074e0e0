// Does the kubeconfig made of a pod's account lead to the API, and is what others put in its place left alone?
import { afterEach, beforeEach, describe, expect, setSystemTime, spyOn, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  judgeKubeconfig,
  kubeconfigIn,
  layKubeconfig,
  removeKubeconfig,
  renderKubeconfig,
} from '../../../../src/cli/install/kubeconfig.ts';
import { openCluster } from '../../../../src/delegate/kubernetes.ts';
import { startApiServer } from '../../../helpers/kubernetes.ts';
import { describeNeeding, requires } from '../../../helpers/skip.ts';

let dir: string;
let confDir: string;
let account: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-account-'));
  confDir = path.join(dir, 'net.d');
  account = path.join(dir, 'account');
  fs.mkdirSync(account);
  fs.writeFileSync(path.join(account, 'ca.crt'), 'authority');
  fs.writeFileSync(path.join(account, 'token'), 'first');
});
afterEach(() => {
  setSystemTime();
  fs.rmSync(dir, { recursive: true });
});

const ENV = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' };
const render = (env: object = ENV) => renderKubeconfig({ dir: account, onHost: '/host/account' }, { ...env });

describe('renderKubeconfig()', () => {
  test('refers to the token by its path on the host, and contains no secret', () => {
    const text = render();
    expect(text).toContain('"tokenFile": "/host/account/token"');
    expect(text).toContain('"server": "https://10.96.0.1:443"');
    expect(text).not.toContain('first');
    expect(render({ ...ENV, KUBERNETES_SERVICE_HOST: 'fd00::1' })).toContain('"https://[fd00::1]:443"');
  });

  test('needs a pod with a service account', () => {
    expect(() => render({})).toThrow('Cannot write a kubeconfig: not in a pod');
    fs.rmSync(path.join(account, 'token'));
    expect(render).toThrow(`Cannot read service account "${account}/token"`);
  });
});

test('layKubeconfig() writes a file for its owner only, and removeKubeconfig() keeps the files beside it', () => {
  layKubeconfig(confDir, 'old');
  layKubeconfig(confDir, render());
  const file = kubeconfigIn(confDir);
  expect([fs.statSync(file).mode & 0o777, fs.statSync(path.dirname(file)).mode & 0o777]).toEqual([
    0o600, 0o700,
  ]);
  expect(fs.readdirSync(path.dirname(file))).toEqual(['kubeconfig']);
  fs.writeFileSync(path.join(path.dirname(file), 'other'), '');
  removeKubeconfig(confDir);
  expect(fs.readdirSync(path.dirname(file))).toEqual(['other']);
});

test('judgeKubeconfig() distinguishes our files from others', () => {
  expect(judgeKubeconfig(confDir, render())).toBe('absent');
  layKubeconfig(confDir, render());
  expect(judgeKubeconfig(confDir, render())).toBe('same');
  expect(judgeKubeconfig(confDir, 'another')).toBe('ours');
  fs.writeFileSync(kubeconfigIn(confDir), 'apiVersion: v1\nkind: Config\n');
  expect(judgeKubeconfig(confDir, render())).toBe('foreign');
});

describeNeeding(
  'the kubeconfig of an account',
  () => {
    test('gives access to the API with the current token', async () => {
      const api = await startApiServer(dir);
      try {
        fs.copyFileSync(path.join(dir, 'ca.crt'), path.join(account, 'ca.crt'));
        fs.writeFileSync(path.join(account, 'token'), api.token);
        const { hostname, port } = new URL(api.url);
        const env = { KUBERNETES_SERVICE_HOST: hostname, KUBERNETES_SERVICE_PORT: port };
        layKubeconfig(confDir, renderKubeconfig({ dir: account, onHost: account }, env));
        const open = () => openCluster({ kubeconfig: kubeconfigIn(confDir), timeoutMs: 10_000 });
        api.addPod('ns', 'web', { uid: 'u' });
        const cluster = await open();
        expect(await cluster.findPod('ns', 'web')).toMatchObject({ uid: 'u' });

        // The kubelet exchanges it long before the old one ends.
        api.token = 'second';
        fs.writeFileSync(path.join(account, 'token'), api.token);
        expect(await (await open()).findPod('ns', 'web')).toMatchObject({ uid: 'u' });
        setSystemTime(Date.now() + 61_000);
        expect(await cluster.findPod('ns', 'web')).toMatchObject({ uid: 'u' });

        // While the pod is replaced there is none, for which requests wait half a minute.
        fs.rmSync(path.join(account, 'token'));
        let ms = 0;
        const clock = spyOn(performance, 'now').mockImplementation(() => (ms += 16_000));
        const asked = (await open()).findPod('ns', 'web');
        await expect(asked.finally(() => clock.mockRestore())).rejects.toMatchObject({ code: 11 });
        expect(ms).toBeGreaterThanOrEqual(3 * 16_000);
      } finally {
        await api.close();
      }
    });
  },
  requires('openssl'),
);
