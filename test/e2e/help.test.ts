// Do the examples of the usage texts run as they are printed?
import { expect, test } from 'bun:test';
import { EXAMPLES, GROUPS } from '../../src/cli/usage.ts';
import { deadline } from '../helpers/deadline.ts';
import { withMachine } from '../helpers/machine.ts';
import { IS_SAMPLE } from '../helpers/sample.ts';
import { describeRoot, requiresReference } from '../helpers/skip.ts';
import { wordsOf } from '../helpers/words.ts';

const listOf = (name: string, bridge: string, subnet: string, routing: object) =>
  JSON.stringify({
    cniVersion: '1.0.0',
    name,
    plugins: [
      {
        type: 'bridge',
        bridge,
        ...routing,
        ipMasq: true,
        ipam: { type: 'host-local', ranges: [[{ subnet }]] },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': '500' } },
    ],
  });

/** Exit codes that answer a question. */
const EXIT_CODES: Readonly<Record<string, number>> = {
  // An attachment stands.
  'catena uninstall --dry-run': 1,
  // Nothing listens.
  'catena why-not :8081': 1,
  'catena doctor --traffic': 1,
  // The machine has no uplink.
  'catena why-not web 1.1.1.1:443': 1,
  // The executables differ.
  'catena compare web-net.conflist --with /usr/lib/cni --scene life': 1,
  // There is no terminal to ask on.
  'catena init': 2,
  // None runs.
  'catena daemon --status': 3,
  'catena daemon --ping': 3,
};

/** Examinations of one plugin or of a whole list, which files of their own have. */
const LONG = ['compare', 'conformance'];

/** Commands that serve until they are interrupted. */
const UNTIL_TOLD: readonly string[] = ['ui'];
const END_SOON = ['timeout', '--preserve-status', '--signal=INT', '3'];

describeRoot(
  'the examples of the usage texts',
  () => {
    test(
      'run in the order of the groups',
      async () => {
        await withMachine(async machine => {
          const web = listOf('web-net', 'web0', '10.99.0.0/24', {
            isDefaultGateway: true,
            hairpinMode: true,
          });
          machine.write('/etc/cni/net.d/10-web-net.conflist', web);
          machine.write(
            '/etc/cni/net.d/20-back-net.conflist',
            listOf('back-net', 'back0', '10.98.0.0/24', { isGateway: true }),
          );
          machine.write('/var/lib/desk/web-net.conflist', web);
          await machine.ok(['ip', 'netns', 'add', 'web']);
          const failed: unknown[] = [];
          for (const name of GROUPS.flatMap(({ commands }) => commands)) {
            if (IS_SAMPLE && LONG.includes(name)) continue;
            for (const [, line] of EXAMPLES[name] ?? []) {
              const [, ...args] = wordsOf(line);
              const command = [
                ...(UNTIL_TOLD.includes(name) ? END_SOON : []),
                '/opt/cni/bin/catena',
                ...args,
              ];
              const { exitCode, stdout, stderr } = await machine.run(
                ['env', '--chdir=/var/lib/desk', ...command],
                { timeoutMs: 60_000 },
              );
              if (exitCode !== (EXIT_CODES[line] ?? 0)) failed.push({ line, exitCode, stdout, stderr });
            }
          }
          expect(failed).toEqual([]);
        });
      },
      deadline(120_000),
    );
  },
  requiresReference(),
);
