// Is what each command and the daemon print for programs what the published schemas say, with the exit code of the text?
import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { type AnswerKind, KINDS } from '../../src/cli/answers/kinds.ts';
import { COMMANDS } from '../../src/cli/commands.ts';
import { expectAnswer, expectFailure } from '../helpers/answer.ts';
import { CATENA } from '../helpers/catena.ts';
import { writeChain } from '../helpers/chain.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { deadline } from '../helpers/deadline.ts';
import { follow } from '../helpers/follow.ts';
import { directories, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { IS_SAMPLE } from '../helpers/sample.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';
import { until } from '../helpers/until.ts';

// Dozens of commands in a row, which wait for a core on a busy machine.
setDefaultTimeout(deadline(120_000));

const seen = new Set<AnswerKind>();
const called = new Set<string>();

/** Commands whose output is a document of others, or text, or nothing. */
const WITHOUT_ANSWER = ['check', 'status'];

/** Runs a command, and parses what it prints. */
type Ask = (
  kind: AnswerKind,
  line: string,
  exitCode?: number | 'as text',
) => Promise<ReturnType<typeof JSON.parse>>;

/** A node with one attachment that was traced, and one whose namespace is gone. */
async function onNode(body: (ground: { lab: Lab; pod: string; ask: Ask }) => Promise<void>): Promise<void> {
  await withHost(async lab => {
    const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
    const bridge = { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipam };
    const chain = writeChain(lab, {
      cniVersion: '1.1.0',
      name: 'podnet',
      plugins: [
        bridge,
        { type: 'portmap', capabilities: { portMappings: true } },
        { type: 'tuning', mtu: 1400, dataDir: `${lab.tmp}/tuning` },
      ],
    });
    const [pod, gone] = [await lab.container(), await lab.container()];
    const cap = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] };
    await chain.add(pod, { cap, args: ['--trace'] });
    await chain.add(gone);
    await lab.remove(gone);
    const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
    const run = (args: readonly string[]) =>
      lab.run(lab.host, [CATENA, ...args], { env, cwd: lab.tmp, timeoutMs: deadline(100_000) });
    const ask: Ask = async (kind, line, exitCode = 0) => {
      const args = line.split(' ').map(word => word.replace('{pod}', pod.id).replace('{tmp}', lab.tmp));
      const json = await run([...args, '--output=json']);
      const wanted = exitCode === 'as text' ? (await run(args)).exitCode : exitCode;
      expect([line, json.exitCode, json.stderr]).toEqual([line, wanted, expect.any(String)]);
      seen.add(kind);
      called.add(args[0] ?? '');
      const value = JSON.parse(json.stdout);
      expectAnswer(kind, value);
      return value;
    };
    await body({ lab, pod: pod.id, ask });
  });
}

describeRoot('for programs', () => {
  test('what shows the node', () =>
    onNode(async ({ ask, pod }) => {
      expect((await ask('UnsettledList', 'ls --unsettled')).items).toEqual([]);
      const { attachments } = await ask('Node', 'ls --check');
      expect(attachments.map(({ containerId }: { containerId: string }) => containerId)).toContain(pod);
      expect((await ask('Owners', 'who {pod}')).owners).toMatchObject([{ attachment: { containerId: pod } }]);
      await ask('Owners', 'who 192.0.2.1', 1);
      await ask('TrafficReport', 'doctor --traffic', 1);
      const { outcome, hops } = await ask('PacketWalk', 'why-not :8080', 1);
      expect([outcome, hops.length > 0]).toEqual(['stopped', true]);
      expect((await ask('LogEntryList', 'log')).items).toMatchObject([{ what: 'ADD' }, { what: 'ADD' }]);
    }));

  test('what shows the configuration', () =>
    onNode(async ({ ask, pod }) => {
      const { files, runtimes } = await ask('NetworkFiles', 'networks --why');
      expect([files.length > 0, runtimes.length]).toEqual([true, 3]);
      const { items } = await ask('LeaseList', 'ipam ls podnet');
      expect(items).toHaveLength(2);
      await ask('Lease', `ipam why podnet ${items[0].address}`);
      expect((await ask('ClusterPoolList', 'ipam pools')).items).toEqual([]);
      const [{ id, startedAt, plugins }] = (await ask('RequestList', 'log --requests')).items;
      for (const one of ['--network podnet', '--container {pod}', '--since 1d'])
        expect((await ask('RequestList', `log --requests ${one}`)).items).toHaveLength(1);
      for (const none of ['--network nope', '--container nope', '--since 2100-01-01'])
        expect((await ask('RequestList', `log --requests ${none}`)).items).toEqual([]);
      expect([new Date(startedAt).toISOString(), plugins.length > 2]).toEqual([startedAt, true]);
      expect(await ask('Request', `log ${id}`)).toMatchObject({ id, containerId: pod });
      expect(await ask('NetworkVersions', 'networks --versions podnet')).toMatchObject({ usable: true });
      await ask('Validation', 'validate {tmp}/podnet.conflist', 'as text');
      await ask('NetworkExplanation', 'validate --explain podnet');
      await ask('CodeExplanation', 'help 11');
      const made = await ask(
        'NewNetwork',
        'init other --kind bridge --subnet auto --file {tmp}/other.conflist',
      );
      expect(made.list).toMatchObject({ name: 'other', plugins: [{ type: 'bridge' }] });
    }));

  test('what examines the node, and what serves', () =>
    onNode(async ({ ask }) => {
      await ask('Diagnosis', 'doctor', 'as text');
      const { files: packed } = await ask('Bundle', 'doctor --bundle {tmp}/report.tar.gz');
      expect(packed.length).toBeGreaterThan(10);
      await ask('UiAddress', 'ui --idle-exit 1');
      await ask('DaemonEnd', 'daemon --stop');
      await ask('DaemonStatus', 'daemon --status', 3);
      await ask('Ping', 'daemon --ping', 3);
    }));

  test('what repairs, deletes and hands over', () =>
    onNode(async ({ ask, pod, lab }) => {
      const { attachments } = await ask('RepairReport', 'repair');
      expect(attachments).toContainEqual(expect.objectContaining({ containerId: pod, state: 'sound' }));
      const plan = await ask('GarbagePlan', 'gc podnet --dry-run --valid {pod}/eth0');
      expect(plan).toMatchObject({
        valid: [{ containerId: pod, ifname: 'eth0' }],
        keep: [{ containerId: pod }],
      });
      fs.mkdirSync(`${lab.tmp}/others`);
      const { items } = await ask('HandoverList', `handover --to ${lab.tmp}/others --dry-run`, 1);
      expect(items.map(({ state }: { state: string }) => state)).toContain('refused');
      await ask('GoneList', 'gc --gone --grace 0');
      const places = '--bin-dir {tmp}/bin --conf-dir {tmp}/net.d';
      const { steps } = await ask('Installation', `install ${places} {tmp}/podnet.conflist`);
      expect(steps.map(({ action }: { action: string }) => action)).toContain('create');
      await ask('Uninstallation', `uninstall ${places} --dry-run`);
    }));

  test('what a chain would call, without calling it', () =>
    onNode(async ({ ask, pod, lab }) => {
      const other = await lab.container();
      const files = () =>
        [...new Bun.Glob('**').scanSync(lab.tmp)].filter(file => !/\.lock$|^run\//.test(file));
      // The device of the container that is gone may vanish; timers of a bridge run.
      const links = async () =>
        (await lab.ip(lab.host, 'link')).flatMap(({ ifname, ifalias = '', flags }) =>
          ifalias.includes(pod) ? [[ifname, flags]] : [],
        );
      const look = async () => [await links(), await lab.dump(other), files().sort()];
      const before = await look();
      const types = ({ plugins }: { plugins: { type: string }[] }) => plugins.map(({ type }) => type);
      const chain = ['bridge', 'portmap', 'tuning'];
      const added = await ask('ChainPlan', `add podnet ${other.path} -p 9000:90 --dry-run`);
      expect(added).toMatchObject({ verb: 'ADD', recorded: false, netns: other.path });
      expect(types(added)).toEqual(chain);
      expect(added.plugins[1].request.runtimeConfig.portMappings).toMatchObject([{ hostPort: 9000 }]);
      const nowhere = [
        'add',
        'podnet',
        '/run/netns/nowhere',
        '--dry-run',
        '--conf-dir',
        lab.tmp,
        '--bin-dir',
        BIN_DIR,
      ];
      const refused = await lab.run(lab.host, [CATENA, ...nowhere]);
      expect([refused.exitCode, refused.stderr]).toEqual([1, expect.stringContaining('/run/netns/nowhere')]);
      expect(await ask('ChainPlan', 'attach {pod} podnet --dry-run')).toMatchObject({ ifname: 'net1' });
      const changed = await ask('ChainPlan', 'set {pod} podnet -p 9000:90 --dry-run');
      expect([changed.verb, types(changed)]).toEqual(['SET', ['portmap']]);
      const deleted = await ask('ChainPlan', 'detach {pod} podnet --force --dry-run');
      expect(deleted).toMatchObject({ verb: 'DEL', recorded: true });
      expect(types(deleted)).toEqual(chain.toReversed());
      await ask('ChainPlan', `del podnet ${other.path} --dry-run`);
      const [{ address }] = (await ask('LeaseList', 'ipam ls podnet')).items;
      await ask('Lease', `ipam free podnet ${address} --force --dry-run`);
      await ask('NewNetwork', 'init other --kind bridge --subnet auto --file {tmp}/o.conflist --dry-run');
      expect(await look()).toEqual(before);
    }));

  test(
    'what compares executables',
    () =>
      onNode(async ({ ask }) => {
        expect(await ask('Trial', `try ${ROOT}/conflists/bridge-full.conflist`)).toMatchObject({
          ok: true,
          network: 'bridge-full',
        });
        expect(
          await ask('Comparison', `compare podnet --with ${BIN_DIR} --plugin tuning --scene life`),
        ).toMatchObject({
          same: true,
        });
      }),
    deadline(180_000),
  );

  test(
    'what examines executables',
    () =>
      onNode(async ({ ask }) => {
        expect((await ask('Conformance', 'conformance tuning --chained')).rules.length).toBeGreaterThan(5);
        const { items } = await ask('SurveyList', `swap podnet --bin-dir ${BIN_DIR}`);
        expect(items.map(({ type }: { type: string }) => type)).toContain('tuning');
        const same = `swap podnet --plugin tuning --to ${BIN_DIR}/tuning --bin-dir ${BIN_DIR}`;
        expect(await ask('Replacement', same)).toMatchObject({ outcome: 'same', type: 'tuning' });
      }),
    deadline(180_000),
  );

  test('what the daemon answers', () =>
    onNode(async ({ ask, lab }) => {
      const daemon = await startDaemon(lab);
      const get = async (where: string, init?: RequestInit) => (await daemon.fetch(where, init)).json();
      const expectKind = (kind: AnswerKind, value: unknown) => {
        seen.add(kind);
        return expectAnswer(kind, value);
      };
      await ask('Ping', 'daemon --ping');
      await ask('DaemonStatus', 'daemon --status');
      expectKind('DaemonState', await get('/v1/state'));
      expectKind('Node', await get('/v1/attachments'));
      expectKind('RequestList', await get('/v1/traces'));
      const [{ id }] = (await ask('RequestList', 'log --requests')).items;
      expectKind('Request', await get(`/v1/traces/${id}`));
      const wrong = await daemon.fetch('/v1/call', { method: 'POST', body: '{"network":"n"}' });
      expect([wrong.status, await wrong.json()]).toMatchObject([400, { code: 6, msg: expect.any(String) }]);
      expectKind('DaemonProcess', await get('/v1/stop', { method: 'POST' }));
      expect(await daemon.exited).toBe(0);
      await startDaemon(lab);
      expect(await ask('DaemonEnd', 'daemon --stop')).toMatchObject({ stopped: true });
    }));

  test('log --follow: one answer a line, or YAML document', () =>
    onNode(async ({ lab }) => {
      const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
      const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
      const shown = async (format: string, answer: RegExp) => {
        const argv = ['env', ...variables, CATENA, 'log', '--follow', '--output', format];
        const follower = follow(lab.start(lab.host, argv));
        await until(() => follower.said().match(answer)?.length === 2);
        expect(await follower.end()).toBe(0);
        return follower.said();
      };
      const lines = (await shown('json', /\n/g)).trimEnd().split('\n');
      expect(lines).toHaveLength(2);
      for (const line of lines) expectAnswer('LogEntry', JSON.parse(line));
      seen.add('LogEntry');
      const [empty, ...documents] = (await shown('yaml', /^---\n/gm)).split(/^---\n/m);
      expect([empty, documents.length]).toEqual(['', 2]);
      for (const text of documents) expectAnswer('LogEntry', Bun.YAML.parse(text));
    }));

  test.each(['log --follow', 'ls --watch'])('%s ends when its reader has closed the pipe', command =>
    onNode(async ({ lab, pod }) => {
      const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
      const line = `(timeout 60 ${CATENA} ${command}; echo "ended with $?" >&2) | head -1`;
      const child = lab.start(lab.host, [
        'env',
        ...Object.entries(env).map(one => one.join('=')),
        'sh',
        '-c',
        line,
      ]);
      const shown = follow(child);
      await until(() => shown.said().includes('\n'));
      await lab.run(lab.host, [CATENA, 'set', pod, 'podnet', '-p', '8081:80'], { env });
      expect(await child.stderr.text()).toBe('ended with 0\n');
    }),
  );

  test('YAML has the same value, results and errors keep the form of the specification', () =>
    onNode(async ({ lab }) => {
      const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
      const run = (...args: string[]) => lab.run(lab.host, [CATENA, ...args], { env });
      const [json, yaml] = [await run('networks', '--json'), await run('networks', '--output', 'yaml')];
      expect(Bun.YAML.parse(yaml.stdout)).toEqual(JSON.parse(json.stdout));
      const other = await lab.container();
      const added = await run('add', 'podnet', other.path, '--output', 'yaml');
      expect(Object.keys(Bun.YAML.parse(added.stdout) as object)).toEqual(
        expect.arrayContaining(['cniVersion', 'interfaces', 'ips']),
      );
      expect(added.stdout).not.toContain('apiVersion');
      for (const format of ['json', 'yaml']) {
        const { exitCode, stderr } = await run('add', 'nowhere', other.path, '--output', format);
        expect([exitCode, JSON.parse(stderr)]).toMatchObject([1, { code: 7 }]);
        expectFailure(JSON.parse(stderr));
      }
      expect((await run('ls', '--output', 'table')).exitCode).toBe(2);
      fs.writeFileSync(`${lab.tmp}/broken.conflist`, '{');
      const warned = (await run('ls', '--json')).stderr.trimEnd().split('\n');
      for (const line of warned) expectAnswer('Warning', JSON.parse(line));
      seen.add('Warning');
    }));
});

/** Every command that prints more than a result, for people. */
const SHOWN = [
  ...[
    'help',
    'help set',
    'help install',
    'help 11',
    'ls',
    'ls --check',
    'ls --unsettled',
    'ls --output tree',
  ],
  ...[
    'who {pod}',
    'who 10.88.0.1',
    'why-not :8080',
    'log',
    'log --requests',
    'log {trace}',
    'log {trace} --kernel',
  ],
  ...[
    'networks',
    'networks --why',
    'networks --versions {net}',
    'ipam ls {net}',
    'ipam why {net} 10.88.0.2',
    'ipam pools',
  ],
  ...[
    'validate {tmp}',
    'validate --explain {net}',
    'doctor',
    'doctor --all',
    'doctor --traffic',
    'daemon --status',
  ],
  ...[
    'add {net} {path} --ifname net7 --dry-run',
    'set {pod} {net} -p 9:9 --dry-run',
    'detach {pod} {net} --force --dry-run',
  ],
  ...['gc {net} --all --dry-run', 'gc --gone --dry-run', 'repair --dry-run', 'handover --to {tmp} --dry-run'],
  ...[
    'install {tmp}/{net}.conflist --bin-dir {tmp}/bin --dry-run',
    'uninstall --bin-dir {tmp}/bin --dry-run',
  ],
  ...[
    'swap {net}',
    'init a --kind bridge --subnet auto --dry-run',
    'try {net}',
    'conformance {bin}/loopback',
  ],
  // Errors.
  ...[
    'add {net} {path} --ifname eth0',
    'add nowhere {path}',
    'check {net} /run/netns/none',
    'set nothing {net} -p 9:9',
    'attach {pod} nowhere --ifname net9',
    'who 192.0.2.1',
    'ls --no-such-option --check',
    'install {tmp}/none.conflist --bin-dir {tmp}/bin',
  ],
];
const WIDTHS = IS_SAMPLE ? [60] : [60, 80, 120];
/** At one width. */
const SLOW = /^(conformance|doctor --traffic|handover|swap|try)/;
const NET = 'backend-production-of-the-eastern-region';

describeRoot('for people', () => {
  test(
    'every table and text fits narrow and wide terminals, and nothing of it is cut',
    () =>
      withHost(async lab => {
        const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
        const chain = writeChain(lab, {
          cniVersion: '1.1.0',
          name: NET,
          plugins: [
            { type: 'bridge', bridge: 'br0', isDefaultGateway: true, ipam },
            { type: 'portmap', capabilities: { portMappings: true } },
            { type: 'tuning', mtu: 1400, dataDir: `${lab.tmp}/tuning` },
          ],
        });
        const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
        const pods = ['storefront-checkout-api-7c9d4f5b88-x2k4q', 'inventory-synchronizer-0', 'web'];
        let pod = await lab.container();
        for (const [at, name] of pods.entries()) {
          pod = await lab.container();
          const args = [
            '--args',
            `IgnoreUnknown=1;K8S_POD_NAMESPACE=department-of-payments;K8S_POD_NAME=${name}`,
            '--trace',
          ];
          await chain.add(pod, { cap: { portMappings: [8080, 8443].map(port => portOf(port + at)) }, args });
        }
        const run = async (line: string, columns?: number) => {
          const argv = [CATENA, ...line.split(' ')];
          const width = columns === undefined ? {} : { COLUMNS: `${columns}` };
          const { stdout, stderr } = await lab.run(lab.host, argv, {
            env: { ...env, ...width },
            cwd: lab.tmp,
          });
          expect([line, stdout || stderr]).not.toEqual([line, '']);
          return { stdout, stderr };
        };
        const trace = /^\S+/m.exec((await run('log --requests')).stdout.split('\n').at(-2) ?? '')?.[0] ?? '';
        const given = { pod: pod.id, net: NET, tmp: lab.tmp, path: pod.path, bin: BIN_DIR, trace };
        const wrong: string[] = [];
        for (const row of SHOWN) {
          const line = row.replace(/\{(\w+)\}/g, (_, name) => given[name as keyof typeof given]);
          for (const width of SLOW.test(row) ? [60] : WIDTHS) {
            const { stdout: text, stderr } = await run(line, width);
            const tooWide = `${text}${stderr}`
              .split('\n')
              .filter(one => one.length > width && !staysWhole(one, width));
            wrong.push(...tooWide.map(one => `${width} ${row}: ${one}`));
            if (marks(text) > 1 && marks(text) > marks((await run(line)).stdout))
              wrong.push(`${width} ${row}: is cut`);
          }
        }
        expect(wrong).toEqual([]);
        for (const line of ['ls', `ipam ls ${NET}`, 'log']) {
          const { stdout: wide } = await run(`${line} --output wide`, 60);
          const { stdout: whole } = await run(`${line} --output wide`);
          // Ages go on in between.
          const ageless = (text: string): string => text.replace(/ +\d+ s$/gm, '');
          expect([line, ageless(wide)]).toEqual([line, ageless(whole)]);
          expect(wide).toContain(NET);
        }
      }),
    deadline(300_000),
  );
});

function portOf(hostPort: number) {
  return { hostPort, containerPort: 80, protocol: 'tcp' };
}

/** What shows that something was cut, or stands for the rest of a list. */
function marks(text: string): number {
  return text.split('…').length;
}

/** A command to copy, a file with a position, and a word that is wider than the room. */
function staysWhole(line: string, width: number): boolean {
  const [indent = ''] = /^[\s│├└─]*/.exec(line) ?? [];
  return (
    /^\s*((fix|mend|next): )?(catena|chmod|ip|kill|nft|nsenter|sysctl|systemctl) |^\s*("|[{}\]])/.test(
      line,
    ) ||
    line
      .trimStart()
      .split(/ +/)
      .some(word => indent.length + word.length > width)
  );
}

describe('the table of answers', () => {
  test('has every command and every kind', () => {
    expect([...seen].sort()).toEqual(Object.keys(KINDS).sort() as AnswerKind[]);
    expect([...called, ...WITHOUT_ANSWER].sort()).toEqual(COMMANDS.map(({ name }) => name).sort());
  });

  const kinds = [...Object.keys(KINDS), 'Failure'];
  test.each(kinds.filter((_, i) => !IS_SAMPLE || i % 6 === 0))(
    'the schema of %s is published, and printed by the command',
    async kind => {
      const file = path.join(ROOT, `dist/schemas/output/${kind}.json`);
      const child = Bun.spawn([CATENA, 'validate', '--schema', kind], { stdout: 'pipe' });
      expect(await new Response(child.stdout).text()).toBe(fs.readFileSync(file, 'utf8'));
    },
  );
});
