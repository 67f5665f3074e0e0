// Does one short command answer each of the questions that people ask of a node?
import { expect, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { type Machine, withMachine } from '../helpers/machine.ts';
import { describeRoot } from '../helpers/skip.ts';

const CATENA = '/opt/cni/bin/catena';

const LIST = {
  cniVersion: '1.0.0',
  name: 'web-net',
  plugins: [
    {
      type: 'bridge',
      bridge: 'web0',
      isDefaultGateway: true,
      ipMasq: true,
      hairpinMode: true,
      ipam: { type: 'host-local', ranges: [[{ subnet: '10.22.0.0/24' }]] },
    },
    { type: 'portmap', capabilities: { portMappings: true } },
  ],
};

/** A pod of the network, with port 8080 of the node at its port 80, where nothing listens. */
async function prepare(machine: Machine): Promise<void> {
  machine.write('/etc/cni/net.d/10-web.conflist', JSON.stringify(LIST));
  await machine.ok(['ip', 'netns', 'add', 'web']);
  const ports = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] };
  await machine.ok([
    ...[CATENA, 'add', 'web-net', 'web', '--cap', JSON.stringify(ports)],
    ...['--args', 'IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=frontend'],
  ]);
}

/** Each question, the command that answers it, its exit code, and what the answer must contain. */
const QUESTIONS: readonly (readonly [question: string, line: string, exitCode: number, ...RegExp[]])[] = [
  [
    'What will this list do?',
    'validate --explain web-net',
    0,
    /bridge/,
    /10\.22\.0\.0\/24/,
    /portmap/,
    /who reaches whom/,
  ],
  ['Which container has 10.22.0.2, and since when?', 'who 10.22.0.2', 0, /shop\/frontend/, /web-net/],
  ['Why does port 8080 not answer?', 'why-not 8080', 1, /listen/, /shop\/frontend|web/],
  ['Why does the pod not answer?', 'why-not frontend:80', 1, /listen/],
  ['What changed since yesterday?', 'log --since yesterday', 0, /ADD/, /web-net/, /frontend/],
  ['What is on this node?', 'ls', 0, /shop\/frontend/, /10\.22\.0\.2/, /8080/],
  ['What does it look like?', 'ls --output tree', 0, /web0/, /frontend/],
  ['Is it healthy?', 'ls --check', 0, /frontend/],
  ['What does error code 11 mean?', 'help 11', 0, /11/],
];

describeRoot('the questions of a newcomer', () => {
  test(
    'are answered by a command each',
    async () => {
      await withMachine(async machine => {
        await prepare(machine);
        const failed: unknown[] = [];
        for (const [question, line, exitCode, ...expected] of QUESTIONS) {
          const finished = await machine.run([CATENA, ...line.split(' ')]);
          const missing = expected.filter(pattern => !pattern.test(finished.stdout)).map(String);
          if (finished.exitCode !== exitCode || missing.length)
            failed.push({ question, missing, ...finished });
        }
        expect(failed).toEqual([]);
      });
    },
    deadline(120_000),
  );
});
