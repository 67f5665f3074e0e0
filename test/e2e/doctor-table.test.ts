// Does the doctor name every fault of a broken node, and do the commands that it prints mend it?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { type Daemon, startDaemon } from '../helpers/daemon.ts';
import { DAMAGES } from '../helpers/damages.ts';
import { expectGenerated, table } from '../helpers/generated.ts';
import { withoutOurs } from '../helpers/journal.ts';
import { type Container, directories, type Lab, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';

interface Node {
  readonly lab: Lab;
  readonly web: Container;
  readonly small: Container;
  /** Runs a command line in the host's namespace, as an operator pastes it. */
  paste(line: string): Promise<void>;
  daemon?: Daemon;
}

interface Finding {
  readonly id: string;
  readonly severity: string;
  readonly found: string;
  readonly mend?: string;
}

/** A way to break a node: what is found, and how it is mended, by default with the printed commands. */
interface Way {
  readonly way: string;
  readonly ids: readonly string[];
  break(node: Node): unknown;
  mend?(node: Node): unknown;
}

const NAMES = { bridge: 'br0', gateway: '10.88.0.1/16', subnet: '10.88.0.0/16', port: '', id: '' };
const lineOf = (damage: keyof typeof DAMAGES): string => DAMAGES[damage].line(NAMES);

const WAYS: readonly Way[] = [
  { way: '`nft flush ruleset`', ids: ['attachments'], break: ({ paste }) => paste(lineOf('rules flushed')) },
  {
    way: 'the device of a container deleted',
    ids: ['attachments'],
    async break({ lab }) {
      const [port] = await lab.ip(lab.host, 'link', 'show', 'master', 'br0');
      await lab.ip(lab.host, 'link', 'del', port?.ifname);
    },
  },
  {
    way: 'the list removed',
    ids: ['configuration.unlisted'],
    break: ({ lab }) => fs.renameSync(`${lab.tmp}/podnet.conflist`, `${lab.tmp}/podnet.away`),
    mend: ({ lab }) => fs.renameSync(`${lab.tmp}/podnet.away`, `${lab.tmp}/podnet.conflist`),
  },
  {
    way: '`nft flush ruleset`; another runtime made the attachment',
    ids: ['attachments'],
    async break({ lab, web, paste }) {
      withoutOurs(`${lab.tmp}/cni/results/podnet-${web.id}-eth0`);
      await paste(lineOf('rules flushed'));
    },
  },
  {
    way: 'the address of the bridge removed',
    ids: ['attachments'],
    break: ({ paste }) => paste(lineOf('address removed')),
  },
  {
    way: 'another device under the name of the bridge',
    ids: ['attachments'],
    break: ({ paste }) => paste('ip link del br0 && ip link add br0 type veth peer name br0peer'),
  },
  { way: 'the bridge set down', ids: ['attachments'], break: ({ paste }) => paste(lineOf('bridge down')) },
  {
    way: 'the default route in the container deleted',
    ids: ['attachments'],
    break: ({ lab, web }) => lab.run(web, ['sh', '-c', lineOf('default route deleted')]),
  },
  {
    way: '`ip_forward` set to 0',
    ids: ['attachments', 'kernel.forwarding'],
    break: ({ paste }) => paste(lineOf('forwarding off')),
  },
  {
    way: 'a foreign rule that drops forwarded packets',
    ids: ['kernel.foreign-rules'],
    break: ({ paste }) => paste(lineOf('foreign drop')),
    mend: ({ paste }) => paste('nft delete table inet fw'),
  },
  {
    way: 'a foreign policy of `drop`',
    ids: ['kernel.foreign-rules'],
    break: ({ paste }) => paste(lineOf('foreign policy')),
  },
  {
    way: 'a foreign DNAT of the same port',
    ids: ['kernel.foreign-rules'],
    break: ({ paste }) =>
      paste(
        `nft 'delete table inet fw; add table ip other; add chain ip other pre { type nat hook prerouting priority -110; }; add rule ip other pre tcp dport 8080 dnat to 10.9.9.9'`,
      ),
  },
  {
    way: 'the last address of a pool in use',
    ids: ['ipam.pools'],
    break: ({ small, paste }) => paste(`catena add tiny ${small.path} --container-id ${small.id} >&2`),
    mend: () => undefined,
  },
  {
    way: 'its namespace removed without a DEL',
    ids: ['ipam.pools', 'state.abandoned'],
    break: ({ lab, small }) => lab.remove(small),
  },
  {
    way: 'a list that is cut off',
    ids: ['configuration.broken'],
    break: ({ lab }) => fs.writeFileSync(`${lab.tmp}/zz.conflist`, '{"cniVersion": "1.0.0",'),
    mend: ({ lab }) => fs.rmSync(`${lab.tmp}/zz.conflist`),
  },
  {
    way: 'a route of the node inside the subnet',
    ids: ['network.subnet-overlap'],
    break: ({ paste }) => paste('ip route add 10.88.7.0/24 dev outside0'),
    mend: ({ paste }) => paste('ip route del 10.88.7.0/24 dev outside0'),
  },
  {
    way: 'a directory that every user may write to',
    ids: ['permissions'],
    break: ({ lab }) => fs.chmodSync(`${lab.tmp}/run`, 0o777),
  },
  {
    way: 'an entry and a note cut off',
    ids: ['state.damaged'],
    break({ lab, web }) {
      fs.mkdirSync(`${lab.tmp}/state/unsettled/podnet`, { recursive: true });
      fs.writeFileSync(`${lab.tmp}/state/unsettled/podnet/${web.id}:eth0`, '{"record":1,"network":"podnet"');
      cutOff(lab, web, text => text.slice(0, 20));
    },
    mend({ lab, web }) {
      cutOff(lab, web, (_, file) => saved.get(file) ?? '');
      fs.rmSync(`${lab.tmp}/state/unsettled/podnet/${web.id}:eth0`);
    },
  },
  {
    way: 'a frozen daemon',
    ids: ['daemon'],
    async break(node) {
      node.daemon = await startDaemon(node.lab);
      process.kill(node.daemon.pid, 'SIGSTOP');
    },
    mend: () => undefined,
  },
  {
    way: 'a killed daemon',
    ids: ['daemon'],
    async break({ daemon }) {
      process.kill(daemon?.pid ?? 0, 'SIGKILL');
      await daemon?.exited;
    },
    mend: ({ daemon }) => fs.rmSync(daemon?.socket ?? ''),
  },
];

const saved = new Map<string, string>();

function cutOff(lab: Lab, { id }: Container, change: (text: string, file: string) => string): void {
  const dir = `${lab.tmp}/cni/results`;
  for (const file of fs.readdirSync(dir).map(name => `${dir}/${name}`)) {
    if (!file.includes(id)) continue;
    const text = fs.readFileSync(file, 'utf8');
    fs.writeFileSync(file, change(text, file));
    if (!saved.has(file)) saved.set(file, text);
  }
}

describeRoot('catena doctor', () => {
  const makeLab = useLabs();

  test('names each of the ways in which a node is broken, and prints what mends it', async () => {
    const node = await prepare(await makeLab());
    const before = await diagnose(node);
    expect([before.exitCode, before.findings]).toEqual([0, []]);
    const rows: string[][] = [];
    for (const { way, ids, break: damage, mend } of WAYS) {
      await damage(node);
      const { findings, exitCode, summary } = await diagnose(node);
      expect([way, new Set(findings.map(({ id }) => id))]).toEqual([way, new Set(ids)]);
      expect([way, exitCode]).toEqual([way, findings.some(({ severity }) => severity === 'error') ? 1 : 0]);
      expect(summary).toContain('to do (');
      for (const [i, finding] of findings.entries())
        rows.push([
          i === 0 ? way : '',
          finding.severity,
          plain(node, finding.found),
          plain(node, finding.mend ?? ''),
        ]);
      if (mend) await mend(node);
      else
        for (const line of new Set(findings.map(one => one.mend ?? '')))
          await node.paste(line.replace(/gc --gone$/, 'gc --gone --grace 0'));
    }
    const after = await diagnose(node);
    expect([after.exitCode, after.findings, after.summary]).toEqual([0, [], 'healthy']);
    expectGenerated('src/node/doctor/README.md', 'broken', table(['way', 'severity', 'found', 'fix'], rows));
  });
});

/** A host with an uplink, a container with a port, and a network with a single address. */
async function prepare(lab: Lab): Promise<Node> {
  await lab.outside();
  fs.mkdirSync(`${lab.tmp}/run`);
  const full: Row = fullChain(lab);
  full.plugins[0].ipam.ranges.pop();
  const chain = writeChain(lab, full);
  const ipam = { type: 'host-local', subnet: '10.99.0.0/30', dataDir: `${lab.tmp}/leases` };
  const tiny = { type: 'bridge', bridge: 'br1', isGateway: true, ipam };
  writeChain(lab, { cniVersion: '1.0.0', name: 'tiny', plugins: [tiny] });
  const [web, small] = [await lab.container(), await lab.container()];
  await chain.add(web, { cap: { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] } });
  const env = environment(lab);
  return {
    lab,
    web,
    small,
    async paste(line) {
      const { exitCode, stdout, stderr } = await lab.run(lab.host, ['sh', '-c', line], { env });
      if (exitCode !== 0) throw new Error(`Cannot paste ${line}: ${stdout}${stderr}`);
    },
  };
}

function environment(lab: Lab): Record<string, string> {
  const path = `${BIN_DIR}:${process.env.PATH}`;
  return { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR, PATH: path };
}

/** Errors and warnings, without what this machine's own files are reported for. */
async function diagnose({ lab }: Pick<Node, 'lab'>) {
  const { stdout, exitCode } = await lab.run(lab.host, ['catena', 'doctor', '--json'], {
    env: environment(lab),
  });
  const { findings, verdict } = JSON.parse(stdout) as { findings: Finding[]; verdict: { summary: string } };
  const told = findings.filter(({ severity }) => ['error', 'warning', 'unexamined'].includes(severity));
  return {
    exitCode,
    summary: verdict.summary,
    findings: told.filter(({ id }) => !id.startsWith('executables')),
  };
}

/** Without what differs from run to run. */
function plain({ lab, web, small }: Node, text: string): string {
  return text
    .replaceAll(web.id, '<id>')
    .replaceAll(small.id, '<id>')
    .replaceAll(web.path, '<netns>')
    .replaceAll(lab.tmp, '<dir>')
    .replace(/\bveth[\da-f]+/g, '<device>')
    .replace(/process \d+ \([\w-]+\)/g, 'process <pid>')
    .replace(/-CONT \d+/, '-CONT <pid>')
    .replace(/\bfe80::(?!\/)[\da-f:]+/g, 'fe80::…')
    .replace(/handle \d+/g, 'handle <n>');
}
