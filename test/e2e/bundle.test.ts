// Has an archive for a bug report what a maintainer needs, and no secret?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { deadline } from '../helpers/deadline.ts';
import { type Machine, withMachine } from '../helpers/machine.ts';
import { describeRoot } from '../helpers/skip.ts';

const SECRETS = [
  's3cret-of-list',
  's3cret-of-args',
  's3cret-of-unit',
  's3cret-of-settings',
  's3cret-of-broken',
];

const CATENA = '/opt/cni/bin/catena';
const HOME = '/var/lib/desk';

const LIST = {
  cniVersion: '1.0.0',
  name: 'web-net',
  plugins: [
    {
      type: 'bridge',
      bridge: 'web0',
      isDefaultGateway: true,
      ipMasq: true,
      _registryPassword: SECRETS[0],
      args: { cni: { env: { HARMLESS: SECRETS[0] }, 'client-key-data': SECRETS[0] } },
      ipam: { type: 'host-local', ranges: [[{ subnet: '10.99.0.0/24' }]] },
    },
  ],
};

async function prepare(machine: Machine): Promise<void> {
  machine.write('/etc/cni/net.d/10-web.conflist', JSON.stringify(LIST));
  machine.write('/etc/cni/net.d/20-broken.conflist', `{ "token": "${SECRETS[4]}", }`);
  machine.write('/etc/systemd/system/catena.service', `[Service]\nEnvironment=HARMLESS=${SECRETS[2]}\n`);
  machine.write(`${HOME}/daemon.json`, JSON.stringify({ otlp: { headers: { authorization: SECRETS[3] } } }));
  await machine.ok(['ip', 'netns', 'add', 'web']);
  await machine.ok([
    ...[CATENA, 'add', 'web-net', 'web', '--trace'],
    ...['--args', `IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=frontend;API_TOKEN=${SECRETS[1]}`],
  ]);
}

/** A pod that is gone: only the history and the traces name it. */
async function attachAndDelete(machine: Machine): Promise<void> {
  await machine.ok(['ip', 'netns', 'add', 'gone']);
  const args = ['--args', 'IgnoreUnknown=1;K8S_POD_NAMESPACE=bygone;K8S_POD_NAME=departed'];
  for (const verb of ['add', 'del'])
    await machine.ok([CATENA, verb, 'web-net', 'gone', '--trace', ...(verb === 'add' ? args : [])]);
}

/** Runs the command and unpacks what it wrote. */
async function bundle(machine: Machine, ...options: string[]) {
  const file = `${HOME}/report.tar.gz`;
  const args = [CATENA, 'doctor', '--bundle', file, '--config', `${HOME}/daemon.json`, ...options];
  const { exitCode, stdout, stderr } = await machine.run(args, { timeoutMs: 60_000 });
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
  await machine.ok(['tar', '-xzf', file, '-C', HOME]);
  const top = fs.readdirSync(machine.path(HOME)).find(name => name.startsWith('catena-bundle-')) ?? '';
  const dir = machine.path(`${HOME}/${top}`);
  const names = fs.readdirSync(dir, { recursive: true, encoding: 'utf8' });
  const files = new Map(
    names
      .filter(name => fs.statSync(`${dir}/${name}`).isFile())
      .map(name => [name, fs.readFileSync(`${dir}/${name}`, 'utf8')] as const),
  );
  return { stdout, files, all: [...files].flat().join('\n') };
}

describeRoot('catena doctor --bundle', () => {
  test(
    'has what a maintainer asks for, and no secret',
    async () => {
      await withMachine(async machine => {
        await prepare(machine);
        const { stdout, files, all } = await bundle(machine);
        expect([...files.keys()]).toEqual(
          expect.arrayContaining([
            ...[
              'CONTENTS.txt',
              'versions.json',
              'doctor.txt',
              'ls.txt',
              'node.json',
              'log.txt',
              'kernel.txt',
            ],
            ...['filter.json', 'conflists/10-web.conflist', 'conflists/20-broken.conflist'],
            ...['settings/catena.service', 'settings/daemon.json'],
          ]),
        );
        for (const kind of ['journal/', 'results/', 'traces/']) {
          expect([...files.keys()].filter(name => name.startsWith(kind)).length).toBeGreaterThan(0);
        }
        for (const secret of SECRETS) {
          expect(all).not.toContain(secret);
          expect(all).not.toContain(Buffer.from(secret).toString('base64').slice(0, -4));
        }
        expect(files.get('kernel.txt')).toContain('bridge web0');
        expect(files.get('ls.txt')).toContain('shop/frontend');
        expect(files.get('filter.json')).toContain('catena_masquerade');
        expect(files.get('doctor.txt')).toContain('20-broken.conflist');
        expect(files.get('CONTENTS.txt')).toContain('doctor.txt: "catena doctor --all", exit code 1');
        expect(stdout).toContain('doctor.txt');
        expect(fs.statSync(machine.path(`${HOME}/report.tar.gz`)).mode & 0o777).toBe(0o600);

        const again = await machine.run([CATENA, 'doctor', '--bundle', `${HOME}/report.tar.gz`]);
        expect(again.exitCode).toBe(1);
        expect(again.stderr).toContain('it exists; remove it, or choose another file');
      });
    },
    deadline(120_000),
  );

  test(
    'names neither pods nor addresses with --anonymous, and the same by the same word',
    async () => {
      await withMachine(async machine => {
        await prepare(machine);
        await attachAndDelete(machine);
        const { files, all } = await bundle(machine, '--anonymous');
        for (const name of ['frontend', 'shop', 'departed', 'bygone', '10.99.0', ...SECRETS])
          expect(all).not.toContain(name);
        const node = JSON.parse(files.get('node.json') ?? '');
        const [address = ''] = node.attachments[0].addresses;
        expect(address).toMatch(/^ipv4-\d+\/24$/);
        expect(node.attachments[0].podName).toBe('pod-1');
        expect(files.get('ls.txt')).toContain(address.replace('/24', ''));
        expect(files.get('conflists/10-web.conflist')).toMatch(/"subnet": "ipv4-\d+\/24"/);
      });
    },
    deadline(120_000),
  );
});
