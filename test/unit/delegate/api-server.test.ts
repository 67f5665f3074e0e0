// Do requests find the credentials of a cluster while the pod that these belong to is replaced?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ErrorCode } from '../../../src/cni/errors.ts';
import { ApiAccess, Unauthorized } from '../../../src/delegate/api-server.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(tmpdir(), 'cat-access-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const at = (name: string) => path.join(dir, name);

/** As `catena install` writes it, or with a token of its own. */
function writeKubeconfig(user: object): void {
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'c',
    clusters: [{ name: 'c', cluster: { server: 'https://192.0.2.1:6443' } }],
    users: [{ name: 'c', user }],
    contexts: [{ name: 'c', context: { cluster: 'c', user: 'c' } }],
  };
  fs.writeFileSync(at('new'), JSON.stringify(config));
  fs.renameSync(at('new'), at('kubeconfig'));
}
const ofPod = (token: string) => ({
  'auth-provider': { name: 'tokenFile', config: { tokenFile: at(token) } },
});

/** The servers and tokens with which the work is done. */
const done: string[] = [];
beforeEach(() => {
  done.length = 0;
});
const ask = (access: ApiAccess, accepted = 'new') =>
  access.with({ headers: {} }, undefined, async (server, options) => {
    const { Authorization: token } = options.headers as Record<string, string>;
    done.push(`${server} ${token}`);
    if (token !== `Bearer ${accepted}`) throw new Unauthorized(ErrorCode.internal, 'Unauthorized');
    return 'answer';
  });

test('a token that is gone with its pod is awaited, with the kubeconfig of the next one', async () => {
  writeKubeconfig(ofPod('token-of-the-former'));
  const access = new ApiAccess(at('kubeconfig'));
  setTimeout(() => {
    fs.writeFileSync(at('token'), 'new');
    writeKubeconfig(ofPod('token'));
  }, 300);
  expect(await ask(access)).toBe('answer');
  expect(done).toEqual(['https://192.0.2.1:6443 Bearer new']);
});

test('a token that the server refuses, since its pod is gone, is replaced, although it was read less than a minute before', async () => {
  fs.writeFileSync(at('token-of-the-former'), 'old');
  writeKubeconfig(ofPod('token-of-the-former'));
  const access = new ApiAccess(at('kubeconfig'));
  expect(await ask(access, 'old')).toBe('answer');
  fs.rmSync(at('token-of-the-former'));
  setTimeout(() => {
    fs.writeFileSync(at('token'), 'new');
    writeKubeconfig(ofPod('token'));
  }, 300);
  expect(await ask(access)).toBe('answer');
  expect([done.at(1), done.at(-1)]).toEqual([
    'https://192.0.2.1:6443 Bearer old',
    'https://192.0.2.1:6443 Bearer new',
  ]);
});

test('a token that no file renews is not tried again', async () => {
  writeKubeconfig({ token: 'old' });
  await expect(ask(new ApiAccess(at('kubeconfig')))).rejects.toThrow('Unauthorized');
  expect(done).toHaveLength(1);
});

test('a wait ends by its signal, with the reason to try again later', async () => {
  writeKubeconfig(ofPod('none'));
  const access = new ApiAccess(at('kubeconfig'));
  const ending = access.with({ headers: {} }, AbortSignal.timeout(100), async () => 'answer');
  await expect(ending).rejects.toMatchObject({ code: ErrorCode.tryAgainLater });
});
