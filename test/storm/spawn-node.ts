// How is a node made of namespaces, and how is all of it deleted?

import fs from 'node:fs';
import path from 'node:path';
import { childrenOf } from '../helpers/children.ts';
import type { NodeReport } from './history.ts';
import type { Order } from './inside.ts';

const INSIDE = path.resolve(import.meta.dir, 'inside.ts');
const PROJECT = path.resolve(import.meta.dir, '../..');
const UNSHARE = ['--net', '--mount', '--uts', '--pid', '--fork', '--kill-child', '--mount-proc'];
/** A node ends with us, however we end. */
const WITH_US = ['setpriv', '--pdeathsig', 'KILL', '--'];
/** What a node may take longer than it was told. */
const GRACE_MS = 180_000;

// The project and the storm's directory are put back to where they were, in case that is below one that was replaced. The
// shell stays as the first process: it reaps the children of processes that have ended.
const SETUP = `
set -e
cd "$1"
exec 3<"$2"
for dir in /run /var/lib; do mount -t tmpfs tmpfs $dir; done
mkdir -p "$1" "$2" /run/netns
[ -e "$1/package.json" ] || mount --rbind . "$1"
[ -e "$2/A" ] || mount --rbind /proc/self/fd/3 "$2"
exec 3<&-
cat /proc/sys/kernel/random/uuid >/run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
shift 2
"$@" &
wait
`;

/** Runs an order in namespaces of its own, which end with it. */
export async function runNode(
  order: Omit<Order, 'node' | 'report'>,
  { signal }: { readonly signal: AbortSignal },
): Promise<NodeReport | undefined> {
  const node = String(++count);
  const report = `${order.root}/report-${node}.json`;
  const inner = [process.execPath, INSIDE, JSON.stringify({ ...order, node, report })];
  const child = Bun.spawn(
    [...WITH_US, 'unshare', ...UNSHARE, 'sh', '-c', SETUP, 'sh', PROJECT, order.root, ...inner],
    {
      stdin: 'ignore',
      stdout: 'inherit',
      stderr: 'pipe',
    },
  );
  const end = (): void => endChildren(child);
  signal.addEventListener('abort', end);
  const timer = setTimeout(end, order.seconds * 1000 + GRACE_MS);
  try {
    const said = child.stderr.text();
    await child.exited;
    if (fs.existsSync(report)) return JSON.parse(fs.readFileSync(report, 'utf8')) as NodeReport;
    if (signal.aborted) return undefined;
    const text = `node ${node} ended without a report: ${(await said).slice(-2_000)}`;
    return failedReport(order.seed, text);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', end);
    fs.rmSync(report, { force: true });
    fs.rmSync(`${order.root}/nodes/${node}`, { recursive: true, force: true });
  }
}

/** A node that the machine took away must not end the storm. */
function failedReport(seed: number, text: string): NodeReport {
  const violations = [{ rule: 'the storm itself failed', text }];
  const history = { seed, rounds: [] };
  return { seed, steps: 0, rounds: 0, kinds: {}, violations, history, log: [], seconds: 0 };
}

/** The first process of a node takes all others with it. */
function endChildren(unshare: Bun.Subprocess): void {
  for (const pid of childrenOf(unshare.pid)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended.
    }
  }
  unshare.kill('SIGKILL');
}

let count = 0;
