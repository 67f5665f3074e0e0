// What does the tool say to a user who is not root, or is root in a user namespace only?
import { describe, expect } from 'bun:test';
import fs from 'node:fs';
import { AS_ORDINARY_USER, CATENA, requiresOrdinaryUser } from '../helpers/catena.ts';
import { type Finished, run } from '../helpers/command.ts';
import { directories } from '../helpers/netns.ts';
import { copyPlugins } from '../helpers/plugin.ts';
import { requiresRoot, testNeeding } from '../helpers/skip.ts';

const NEEDS = [requiresRoot(), requiresOrdinaryUser()];
const IN_USER_NAMESPACE = ['unshare', '--user', '--map-root-user', '--net', '--mount', '--'];

/** Gives the body a node whose state only root may read or write, and whose list every user may read. */
async function withNode(
  body: (call: (before: readonly string[], ...args: string[]) => Promise<Finished>) => Promise<void>,
): Promise<void> {
  const dir = fs.mkdtempSync('/tmp/catena-ordinary-');
  try {
    fs.chmodSync(dir, 0o755);
    fs.mkdirSync(`${dir}/net.d`);
    const list = { cniVersion: '1.0.0', name: 'lo', plugins: [{ type: 'loopback' }] };
    fs.writeFileSync(`${dir}/net.d/lo.conflist`, JSON.stringify(list));
    const places = directories(dir);
    for (const place of Object.values(places)) fs.mkdirSync(`${place}`, { recursive: true, mode: 0o700 });
    fs.mkdirSync(`${places.CATENA_RUN_DIR}/traces`);
    fs.mkdirSync(`${places.CATENA_CNI_CACHE_DIR}/results`);
    fs.mkdirSync(`${dir}/bin`);
    copyPlugins(['loopback'], `${dir}/bin`);
    const env = { ...places, NETCONFPATH: `${dir}/net.d`, CNI_PATH: `${dir}/bin` };
    await body((before, ...args) => {
      const at = args.map(arg => arg.replace('DIR', dir));
      return run([...before, CATENA, ...at], { env });
    });
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
}

describe('an ordinary user', () => {
  testNeeding(
    'gets an error with the action, the object and the remedy',
    async () => {
      await withNode(async call => {
        const rows = [
          [['ls'], 'Cannot list records in', 'read'],
          [['log', '--requests'], 'Cannot list traces in', 'read'],
          [['log', 'x'], 'Cannot list traces in', 'read'],
          [['daemon'], 'Cannot run "catena daemon": ', 'write'],
          [['install', '--bin-dir', 'DIR/bin'], 'Cannot run "catena install": ', 'write'],
          [['uninstall', '--bin-dir', 'DIR/bin'], 'Cannot list records in', 'read'],
        ] as const;
        for (const [args, what, verb] of rows) {
          const { exitCode, stdout, stderr } = await call(AS_ORDINARY_USER, ...args);
          expect([args, exitCode, stdout]).toEqual([args, 1, '']);
          const [first = '', second] = stderr.split('\n');
          expect(first).toStartWith(`catena: ${what}`);
          expect(first).toEndWith(`; let this user ${verb} there, or run as root`);
          expect(second).toBe('  code: 5');
        }
      });
    },
    ...NEEDS,
  );

  testNeeding(
    'learns from doctor what cannot be examined, without an error',
    async () => {
      await withNode(async call => {
        const { exitCode, stdout } = await call(AS_ORDINARY_USER, 'doctor', '--json');
        const { findings, verdict } = JSON.parse(stdout) as {
          findings: { id: string; severity: string; mend?: string }[];
          verdict: object;
        };
        const hidden = findings.filter(({ severity }) => severity === 'unexamined').map(({ id }) => id);
        // Whether this machine forwards differs.
        expect(new Set(hidden.filter(id => id !== 'kernel.forwarding'))).toEqual(
          new Set([
            ...[
              'state.storage',
              'state.damaged',
              'state.unsettled',
              'state.abandoned',
              'state.garbage',
              'state.locks',
              'daemon',
              'network.nodes',
              'network.status',
            ],
            ...[
              'kernel.foreign-rules',
              'kernel.routing-rules',
              'kernel.packet-filters',
              'attachments',
              'configuration.unlisted',
            ],
          ]),
        );
        expect([exitCode, findings.filter(({ severity }) => severity === 'error')]).toEqual([3, []]);
        expect(verdict).toMatchObject({ state: 'blind', summary: expect.stringContaining('run as root') });
      });
    },
    ...NEEDS,
  );
});

describe('root in a user namespace', () => {
  testNeeding(
    'gets no report that files of the real root have another owner',
    async () => {
      await withNode(async call => {
        const { stdout } = await call([...AS_ORDINARY_USER, ...IN_USER_NAMESPACE], 'doctor', '--json');
        const { findings } = JSON.parse(stdout) as { findings: { id: string; severity: string }[] };
        expect(findings.filter(({ id }) => id === 'permissions').map(({ severity }) => severity)).toEqual([
          'ok',
        ]);
      });
    },
    ...NEEDS,
  );
});
