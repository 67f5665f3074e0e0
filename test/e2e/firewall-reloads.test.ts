// Do pods get their traffic back after another firewall on the node is reloaded or loaded, however often that happens?

import { expect, setDefaultTimeout, test } from 'bun:test';
import { DOCKER_RULES, UFW_RULES } from '../fixtures/foreign-firewalls.ts';
import type { Daemon } from '../helpers/daemon.ts';
import { deadline } from '../helpers/deadline.ts';
import { startFirewalld } from '../helpers/firewalld.ts';
import { requiresFirewalld } from '../helpers/firewalld-packages.ts';
import { wholeLines } from '../helpers/lines.ts';
import { type Lab, type Row, useLabs } from '../helpers/netns.ts';
import { stateOf } from '../helpers/plugin-calls.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { startServer } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';
import {
  attach,
  type Probe,
  startProbe,
  startWatcher,
  untilWatch,
  watchedList,
} from '../helpers/watched-host.ts';

setDefaultTimeout(deadline(240_000));

/** The timer is not to help. */
const SETTINGS = { watch: 'repair', watchSeconds: 3600 };
/** A reload by an operator does not follow the repair of the one before at once. */
const BETWEEN_MS = 2_500;

/** For what must not be noticed. */
const UNNOTICED_FOR_MS = 1_500;

/** A way to interfere, and what must come of it: unless given, it is repaired. */
type Act = readonly [string, () => Promise<unknown>, ('unharmed' | 'given up')?];

describeRoot(
  'pods under firewalld',
  () => {
    const makeLab = useLabs();

    test.each(['nftables', 'iptables'] as const)(
      'pass again after each reload and change of zones with %s, and after five reloads in a row',
      async backend => {
        const lab = await makeLab();
        const outside = await lab.outside();
        const firewalld = await startFirewalld(lab, backend);
        const { env } = firewalld;
        const { container } = await attach(lab, guardedList(lab), 8080, env);
        const daemon = await startWatcher(lab, SETTINGS, env);
        await startServer(lab, outside, { protocol: 'tcp', port: 80 });
        // firewalld accepts what came through a mapped port, but not what pods begin.
        const probe = await startProbe(lab, container, outside.address.v4, 80);
        const { cmd } = firewalld;
        const own = '10.66.0.2/32';
        await playAll(lab, daemon, probe, [
          ['firewall-cmd --reload', () => cmd('--reload')],
          ['firewall-cmd --complete-reload', () => cmd('--complete-reload')],
          ['the pod removed from its zone', () => cmd('--zone=trusted', `--remove-source=${own}`)],
          // An operator may have meant it, so the zone is kept, and the log says why the pod is cut off.
          ['the pod moved to zone "block"', () => cmd('--zone=block', `--change-source=${own}`), 'given up'],
          ['the pod moved back', () => cmd('--zone=trusted', `--change-source=${own}`), 'unharmed'],
          ...Array.from({ length: 5 }, (_, i): Act => [`reload ${i + 1} of 5`, () => cmd('--reload')]),
        ]);
      },
    );
  },
  requires('nft', 'ip') ?? requiresFirewalld(),
);

describeRoot(
  'pods under rule sets of others',
  () => {
    const makeLab = useLabs();

    test('pass again after rules of Docker and ufw were loaded after them', async () => {
      const lab = await makeLab();
      const outside = await lab.outside();
      const { container } = await attach(lab, guardedList(lab, { backend: 'iptables' }), 8080);
      const daemon = await startWatcher(lab, SETTINGS);
      await startServer(lab, outside, { protocol: 'tcp', port: 80 });
      // Rules for pods in iptables accept what these begin.
      const probe = await startProbe(lab, container, outside.address.v4, 80);
      const restore = (rules: string, ...options: string[]) =>
        lab.run(lab.host, ['iptables-restore', ...options], { stdin: rules });
      await playAll(lab, daemon, probe, [
        ['rules of Docker added', () => restore(DOCKER_RULES, '--noflush'), 'unharmed'],
        ['rules of Docker in place of all others', () => restore(DOCKER_RULES)],
        ['rules of ufw in place of all others', () => restore(UFW_RULES)],
        ...Array.from({ length: 5 }, (_, i): Act => [`ufw reload ${i + 1} of 5`, () => restore(UFW_RULES)]),
      ]);
    });
  },
  requires('iptables-restore', 'nft', 'ip'),
);

function guardedList(lab: Lab, firewall: object = {}): Row {
  const list = watchedList(lab, 'pods', '10.66.0.0/24');
  return { ...list, plugins: [...list.plugins, { type: 'firewall', ...firewall }] };
}

/** Each is noticed without the timer and repaired, and traffic passes again. */
async function playAll(lab: Lab, daemon: Daemon, probe: Probe, acts: readonly Act[]): Promise<void> {
  const lines: string[] = [];
  try {
    for (const act of acts) lines.push(await play(daemon, probe, act));
  } finally {
    process.stdout.write(`${lines.join('\n')}\n`);
  }
  const log = wholeLines(`${lab.tmp}/daemon.log`);
  const wanted = acts.filter(([, , outcome]) => outcome === 'given up').length;
  expect(log.filter(line => line.includes('cannot be repaired'))).toHaveLength(wanted);
}

async function play(daemon: Daemon, probe: Probe, [name, act, outcome]: Act): Promise<string> {
  const before = (await stateOf(daemon)).watch;
  const count = (of: Row | undefined, what: string): number => of?.[what] ?? 0;
  const startedAt = Date.now();
  await act();
  const doneAt = Date.now();
  let noticedAt: number | undefined;
  if (outcome === 'unharmed') await Bun.sleep(UNNOTICED_FOR_MS);
  await untilWatch(daemon, ({ checks, repairs, drifted, givenUp }) => {
    if (count(checks, 'drifted') > count(before.checks, 'drifted')) noticedAt ??= Date.now();
    if (outcome === 'given up') return givenUp.length > 0;
    const isRepaired = count(repairs, 'repaired') > count(before.repairs, 'repaired');
    return (isRepaired || outcome === 'unharmed') && drifted.length + givenUp.length === 0;
  }).catch(error => {
    throw new Error(`${name}: ${error.message}`);
  });
  const endedAt = Date.now();
  await until(() => probe.latest().isUp || outcome === 'given up').catch(async () => {
    const { watch } = await stateOf(daemon);
    throw new Error(`${name}: no traffic; the watch reports ${JSON.stringify(watch)}`);
  });
  const { at, isUp } = probe.latest();
  const again = at > startedAt ? `again after ${Math.max(0, at - doneAt)} ms` : 'never interrupted';
  await Bun.sleep(BETWEEN_MS);
  const noticed = noticedAt === undefined ? '-' : `after ${noticedAt - doneAt} ms`;
  const times = `noticed ${noticed}, ${outcome ?? 'repaired'} after ${endedAt - doneAt} ms`;
  return `${name.padEnd(40)} took ${doneAt - startedAt} ms; ${times}, traffic ${isUp ? again : 'ends'}`;
}
