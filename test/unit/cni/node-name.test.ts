// Does every process find the name of its node, whatever its environment is?

import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { renderKubeconfig } from '../../../src/cli/install/kubeconfig.ts';
import { hostName, nodeName, nodeNameGiven, renderNodeLine } from '../../../src/cni/node-name.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-name-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

test('the environment says, else the kubeconfig of an installation, else the host in lower case', () => {
  const account = path.join(dir, 'account');
  fs.mkdirSync(account);
  for (const name of ['ca.crt', 'token']) fs.writeFileSync(path.join(account, name), 'x');
  const env = {
    KUBERNETES_SERVICE_HOST: '10.96.0.1',
    KUBERNETES_SERVICE_PORT: '443',
    CATENA_NODE_NAME: 'node-1',
  };
  const kubeconfig = path.join(dir, 'kubeconfig');
  fs.writeFileSync(kubeconfig, renderKubeconfig({ dir: account, onHost: account }, env));
  expect(nodeName({}, kubeconfig)).toBe('node-1');
  expect(nodeName({ CATENA_NODE_NAME: 'other' }, kubeconfig)).toBe('other');
  expect(nodeNameGiven({}, path.join(dir, 'absent'))).toBeUndefined();
  expect(nodeName({}, path.join(dir, 'absent'))).toBe(hostName());
  expect(hostName()).toBe(os.hostname().toLowerCase());
  expect(renderNodeLine('a')).toBe('# Node: a\n');
});
