// Does the doctor find each damage of a node, and does what it prints mend it, whichever runtime made the container?
import { expect, setDefaultTimeout, test } from 'bun:test';
import { requiresContainerd } from '../helpers/containerd.ts';
import { damageRows } from '../helpers/damage-scenes.ts';
import { type DamageRow, type MadeBy, namesOf, type Scene } from '../helpers/damage-table.ts';
import { onCatena, onContainerd, onPodman, type WholeNode } from '../helpers/damaged-nodes.ts';
import { deadline } from '../helpers/deadline.ts';
import { requiresPodman } from '../helpers/podman.ts';
import { RUNTIME_ENV } from '../helpers/runtimes.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { echo, startServer } from '../helpers/traffic.ts';

setDefaultTimeout(deadline(420_000));

const ENV = {
  PATH: `/opt/cni/bin:${RUNTIME_ENV.PATH}`,
  CATENA_RUN_DIR: '/run/catena',
  LEASES: '/var/lib/cni/networks/shop',
};
/** Each is played on a node of its own. */
const PARTS = 3;
/** What the doctor says where only the runtime can help. */
const REMAKE = /^recreate container "([^"]+)"/;

type Row = DamageRow & Partial<Scene>;

for (const [name, onNode, needs] of [
  ['our own runner', onCatena, requires()],
  ['podman', onPodman, requiresPodman()],
  ['containerd', onContainerd, requiresContainerd()],
] as const)
  describeRoot(
    `damages of a node with a container of ${name}`,
    () => {
      test.each(partsOf(damageRows()))(
        'are told by doctor, mended by what it prints, and gone for doctor and traffic, part %#',
        (...rows) => onNode(node => expectMended(node, rows, name)),
      );
    },
    requires('ip', 'nft', 'tc', 'iptables'),
    needs,
  );

/** Rows of each part, with the last of the table last: it leaves another container. */
function partsOf(rows: readonly Row[]): Row[][] {
  const size = Math.ceil(rows.length / PARTS);
  return Array.from({ length: PARTS }, (_, part) => rows.slice(part * size, (part + 1) * size));
}

interface Finding {
  readonly id: string;
  readonly severity: string;
  readonly found: string;
  readonly mend?: string;
}

async function expectMended(node: WholeNode, rows: readonly Row[], by: MadeBy): Promise<void> {
  const { machine, outside } = node;
  const { lab } = machine;
  let { web } = node;
  let server = await startServer(lab, web.netns, { protocol: 'tcp', port: 80 });
  const typed = async (line: string, inside?: 'container'): Promise<string> => {
    const argv = ['sh', '-c', line];
    const options = { env: ENV, timeoutMs: 60_000 };
    const { exitCode, stdout, stderr } = await (inside
      ? lab.run(web.netns, argv, options)
      : machine.run(argv, options));
    return exitCode === 0 ? '' : `${line}: ${stdout}${stderr}`;
  };
  const diagnose = async (): Promise<Finding[]> => {
    const { stdout } = await machine.run(['catena', 'doctor', '--json'], { env: ENV, timeoutMs: 60_000 });
    const { findings } = JSON.parse(stdout) as { findings: Finding[] };
    return findings.filter(({ severity }) => ['error', 'warning', 'unexamined'].includes(severity));
  };
  const answers = async () => {
    const at = { protocol: 'tcp', address: outside.hostAddress.v4, port: 8080 } as const;
    return (await echo(lab, outside, at)) !== undefined;
  };
  const mend = async (line: string): Promise<string> => {
    const [, name] = REMAKE.exec(line) ?? [];
    if (name === undefined) return await typed(line);
    if (!/(^|\/)web$/.test(name)) {
      await node.remakePeer?.();
      return '';
    }
    await server.stop();
    web = await node.remake();
    server = await startServer(lab, web.netns, { protocol: 'tcp', port: 80 });
    return '';
  };
  // This machine's own files are not the table's business.
  const before = new Set((await diagnose()).map(({ id, found }) => `${id} ${found}`));
  const findings = async () => (await diagnose()).filter(({ id, found }) => !before.has(`${id} ${found}`));
  expect(await answers()).toBe(true);
  const seen: unknown[] = [];
  for (const row of rows) {
    const names = await namesOf(node, web);
    const { damage } = row;
    const broken = await typed(damage.line(names), damage.inside);
    const found = await findings();
    if (row.tells) expect(found.map(one => one.found)).toContainEqual(expect.stringMatching(row.tells));
    const lines = new Set(found.map(({ mend: line = 'nothing is printed' }) => line));
    const failed: string[] = [];
    if (row.mend === 'undo') failed.push(damage.undo ? await typed(damage.undo(names), damage.inside) : '');
    else for (const line of lines) failed.push(await mend(line));
    const left = (await findings()).map(one => one.found);
    const ids = [...new Set(found.map(({ id }) => id))].filter(id => !row.mayFind?.includes(id)).sort();
    const told = [row.way, broken, ids, failed.join(''), left, await answers()];
    process.stdout.write(`${JSON.stringify([...told, [...lines]])}\n`);
    seen.push(told);
  }
  expect(seen).toEqual(rows.map(row => [row.way, '', findsOf(row, by), '', [], true]));
  await server.stop();
}

function findsOf({ finds, findsFor, outcome }: Row, by: MadeBy): readonly string[] {
  if (findsFor?.[by]) return findsFor[by];
  if (finds) return finds;
  if (outcome === 'unharmed') return [];
  return outcome?.startsWith('doctor: ') ? [outcome.slice('doctor: '.length)] : ['attachments'];
}
