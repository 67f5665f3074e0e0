// Does the daemon notice what others do to attachments, repair it if it may, and leave alone what it cannot win?

import { expect, test } from 'bun:test';
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { writeChain } from '../helpers/chain.ts';
import { withoutOurs } from '../helpers/journal.ts';
import { wholeLines } from '../helpers/lines.ts';
import { type Container, type Row, useLabs } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';
import { converse } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';
import { attach, startProbe, startWatcher, untilWatch, watchedList } from '../helpers/watched-host.ts';

describeRoot('a daemon that watches', () => {
  const makeLab = useLabs();

  test('repairs what was removed, and a neighbour does not notice', async () => {
    const lab = await makeLab();
    const outside = await lab.outside();
    const neighbour = await attach(lab, watchedList(lab, 'quiet', '10.77.0.0/24'), 8070);
    const { container } = await attach(lab, watchedList(lab, 'pods', '10.66.0.0/24'), 8080);
    const daemon = await startWatcher(lab, { watch: 'repair', watchSeconds: 1 });
    const [row] = await lab.ip(neighbour.container, '-4', 'addr', 'show', 'dev', 'eth0');
    const address = row?.addr_info[0].local;
    const talk = await converse(lab, {
      from: lab.host,
      to: neighbour.container,
      listen: 81,
      address,
      port: 81,
    });
    const server = await converse(lab, {
      from: lab.host,
      to: container,
      listen: 80,
      address: '10.66.0.2',
      port: 80,
    });
    const probe = await startProbe(lab, outside, outside.hostAddress.v4, 8080);
    const run = (...argv: string[]) => lab.run(lab.host, argv);
    const scenes: [string, () => Promise<unknown>][] = [
      ['nft flush ruleset', () => run('nft', 'flush', 'ruleset')],
      ['table deleted', () => run('nft', 'delete', 'table', 'inet', 'catena_portmap')],
      ['bridge address removed', () => run('ip', 'addr', 'flush', 'dev', 'br-pods')],
      ['bridge down', () => run('ip', 'link', 'set', 'br-pods', 'down')],
      ['ip_forward 0', () => lab.sysctl(lab.host, 'net/ipv4/ip_forward', 0)],
      ['default route of the pod deleted', () => lab.run(container, ['ip', 'route', 'del', 'default'])],
    ];
    const times: string[] = [];
    try {
      let repaired = 0;
      for (const [name, damage] of scenes) {
        const startedAt = Date.now();
        await damage();
        await untilWatch(daemon, watch => (watch.repairs?.repaired ?? 0) > repaired);
        const repairedAfter = Date.now() - startedAt;
        const upAt = await probe.next('up').catch(error => {
          throw new Error(`${name}: ${error.message}`);
        });
        times.push(`${name}: repaired after ${repairedAfter} ms, traffic after ${upAt - startedAt} ms`);
        // Both attachments may have been damaged; the next scene begins when all is sound.
        const watch = await untilWatch(daemon, one => one.drifted.length === 0);
        expect(watch.givenUp).toEqual([]);
        repaired = watch.repairs.repaired;
        expect(await talk.say(name)).toBe(name);
        // Damage that follows a repair at once counts as a repair that did not last.
        await Bun.sleep(1_200);
      }
    } finally {
      process.stdout.write(`${times.join('\n')}\n`);
      await talk.end();
      await server.end();
    }
  });

  test('repairs while the CHECK of a foreign plugin hangs, and ends while it does', async () => {
    const lab = await makeLab();
    const { chain: sound } = await attach(lab, watchedList(lab, 'pods', '10.66.0.0/24'), 8080);
    const binDir = `${lab.tmp}/foreign`;
    mkdirSync(binDir);
    // The fraction tells these from the processes of other runs.
    const sleep = `sleep 1000.${process.pid}`;
    const script = `#!/bin/sh\n[ "$CNI_COMMAND" = CHECK ] && exec ${sleep}\n[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion": "1.1.0"}'\nexit 0\n`;
    writeFileSync(`${binDir}/stuck`, script, { mode: 0o755 });
    const stuck = writeChain(lab, { cniVersion: '1.1.0', name: 'stuck', plugins: [{ type: 'stuck' }] });
    for (let i = 0; i < 4; i++) await stuck.add(await lab.container(), { binDir });
    const daemon = await startWatcher(lab, { watch: 'repair', watchSeconds: 1 });
    const hangs = async () => (await lab.run(lab.host, ['pgrep', '-fc', `^${sleep}$`])).stdout.trim() !== '0';
    await until(hangs);
    expect(sound.name).toBe('pods');
    for (const round of [1, 2]) {
      await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
      await untilWatch(
        daemon,
        watch => (watch.repairs?.repaired ?? 0) >= round && watch.drifted.length === 0,
      );
      // Damage that follows a repair at once counts as a repair that did not last.
      await Bun.sleep(1_200);
    }
    expect(await hangs()).toBe(true);
    expect(await daemon.stop()).toBe(0);
  });

  test('hears of what is removed inside a namespace, and not of what else a container does there', async () => {
    const lab = await makeLab();
    const { container } = await attach(lab, watchedList(lab, 'pods', '10.66.0.0/24'), 8080);
    // The timer is not to help.
    const daemon = await startWatcher(lab, { watch: 'repair', watchSeconds: 3600 });
    await untilWatch(daemon, ({ checks }) => checks?.sound > 0);
    const inside = (...argv: string[]) => lab.run(container, argv);
    const times: string[] = [];
    for (const [i, line] of [
      'ip route del default',
      'ip -4 addr flush dev eth0',
      'ip link set eth0 down',
      'ip link set eth0 address 02:00:00:00:00:07',
    ].entries()) {
      const startedAt = Date.now();
      expect((await inside(...line.split(' '))).exitCode).toBe(0);
      await untilWatch(daemon, watch => (watch.repairs?.repaired ?? 0) > i && watch.drifted.length === 0);
      times.push(`${line}: repaired after ${Date.now() - startedAt} ms`);
      // Damage that follows a repair at once counts as a repair that did not last.
      await Bun.sleep(1_200);
    }
    process.stdout.write(`${times.join('\n')}\n`);
    // The last repair may be followed by a check that a busy machine delays.
    let { checks } = (await untilWatch(daemon, () => true)) as Row;
    for (let before: unknown; !Bun.deepEquals(checks, before); ) {
      before = checks;
      await Bun.sleep(1_200);
      ({ checks } = (await untilWatch(daemon, () => true)) as Row);
    }
    await inside('ip', 'link', 'add', 'own0', 'type', 'dummy');
    for (let i = 0; i < 20; i++)
      for (const state of ['up', 'down']) await inside('ip', 'link', 'set', 'own0', state);
    await Bun.sleep(1_000);
    expect((await untilWatch(daemon, () => true)).checks).toEqual(checks);
    expect(readFileSync(`${lab.tmp}/daemon.log`, 'utf8')).not.toContain('not heard');
  });

  test('gives up what another program removes each time, and what cannot be repaired; reports both once', async () => {
    const lab = await makeLab();
    const { container } = await attach(lab, watchedList(lab, 'pods', '10.66.0.0/24'), 8080);
    const lost = await attach(lab, watchedList(lab, 'lost', '10.67.0.0/24'), 8081);
    const daemon = await startWatcher(lab, { watch: 'repair' });
    const veth = (await lab.ip(lab.host, 'link', 'show', 'master', 'br-lost'))[0]?.ifname;
    await lab.run(lab.host, ['ip', 'link', 'delete', veth]);
    const loop = 'while true; do nft delete table inet catena_masquerade 2>/dev/null; sleep 0.05; done';
    const remover = lab.start(lab.host, ['sh', '-c', loop]);
    await untilWatch(daemon, ({ givenUp }) => givenUp.length === 2);
    await Bun.sleep(1_500);
    remover.kill('SIGKILL');
    const log = wholeLines(`${lab.tmp}/daemon.log`);
    for (const { id } of [container, lost.container]) {
      expect(log.filter(line => line.includes(id) && line.includes('cannot be repaired'))).toHaveLength(1);
    }
    expect(log.join('\n')).toContain(`catena del lost ${lost.container.path}`);
  });

  test('only observes unless it is told to repair; a list decides for its network', async () => {
    const lab = await makeLab();
    mkdirSync(`${lab.tmp}/net.d`);
    const plain = watchedList(lab, 'plain', '10.66.0.0/24');
    const repaired = watchedList(lab, 'repaired', '10.67.0.0/24', { catena: { watch: 'repair' } });
    const off = watchedList(lab, 'off', '10.68.0.0/24', { catena: { watch: 'off' } });
    const others = watchedList(lab, 'others', '10.69.0.0/24');
    const unchecked = watchedList(lab, 'unchecked', '10.70.0.0/24', { disableCheck: true });
    const lists = [plain, repaired, off, others, unchecked];
    for (const [i, list] of lists.entries()) {
      writeFileSync(`${lab.tmp}/net.d/${list.name}.conflist`, JSON.stringify(list));
      await attach(lab, list, 8080 + i);
    }
    for (const name of readdirSync(`${lab.tmp}/cni/results`))
      if (name.startsWith('others-')) withoutOurs(`${lab.tmp}/cni/results/${name}`);
    const daemon = await startWatcher(lab, {});
    for (const { name } of lists) await lab.run(lab.host, ['ip', 'addr', 'flush', 'dev', `br-${name}`]);
    const watch = await untilWatch(
      daemon,
      one => one.drifted.length === 2 && one.repairs.repaired === 1 && one.checks.unknown > 0,
    );
    expect(watch).toMatchObject({ policy: 'observe', givenUp: [] });
    expect(watch.drifted.map(({ network }: Row) => network).sort()).toEqual(['others', 'plain']);
    const log = readFileSync(`${lab.tmp}/daemon.log`, 'utf8');
    for (const advice of ['catena repair plain', 'catena repair others']) expect(log).toContain(advice);
    expect(log.split('\n').filter(line => line.includes('was repaired'))).toMatchObject([
      expect.stringContaining('"network":"repaired"'),
    ]);
    const page = await (await daemon.fetch('/metrics')).text();
    expect(page).toContain('catena_watched_drift{state="drifted"} 2');
    expect(page).toContain('catena_watch_repairs_total{outcome="repaired"} 1');
    const addresses = async (name: string) =>
      (await lab.ip(lab.host, '-4', 'addr', 'show', 'dev', `br-${name}`)).length;
    expect([await addresses('plain'), await addresses('repaired'), await addresses('off')]).toEqual([
      0, 1, 0,
    ]);
  });

  test('follows the configuration directory: a policy that changes counts at once, a list that is removed changes nothing', async () => {
    const lab = await makeLab();
    mkdirSync(`${lab.tmp}/net.d`);
    const file = `${lab.tmp}/net.d/pods.conflist`;
    const list = watchedList(lab, 'pods', '10.66.0.0/24');
    writeFileSync(file, JSON.stringify(list));
    await attach(lab, list, 8080);
    const daemon = await startWatcher(lab, { watchSeconds: 3600 });
    const { checks } = await untilWatch(daemon, one => one.checks.sound > 0);
    // Another list, or the same one written again, is no reason to check.
    const beside = { cniVersion: '1.1.0', name: 'beside', plugins: [{ type: 'loopback' }] };
    writeFileSync(`${lab.tmp}/net.d/beside.conflist`, JSON.stringify(beside));
    writeFileSync(file, JSON.stringify(list));
    await Bun.sleep(1_000);
    expect((await untilWatch(daemon, () => true)).checks).toEqual(checks);
    writeFileSync(file, JSON.stringify({ ...list, disableCheck: false }));
    await untilWatch(daemon, one => one.checks.sound === checks.sound + 1);
    const damage = () => lab.run(lab.host, ['ip', 'addr', 'flush', 'dev', 'br-pods']);
    await damage();
    await untilWatch(daemon, one => one.drifted.length === 1);
    writeFileSync(`${file}.new`, JSON.stringify({ ...list, catena: { watch: 'repair' } }));
    renameSync(`${file}.new`, file);
    await untilWatch(daemon, one => one.drifted.length === 0 && one.repairs.repaired === 1);
    // The list of the ADD, which names no policy, decides then.
    rmSync(file);
    await Bun.sleep(1_200);
    await damage();
    const watch = await untilWatch(daemon, one => one.drifted.length === 1);
    expect(watch).toMatchObject({ attachments: 1, repairs: { repaired: 1 } });
    expect(await lab.ip(lab.host, 'link', 'show', 'master', 'br-pods')).toHaveLength(1);
  });

  test('names the plugin that a list lost and got back, who wrote the file, and what was attached in between', async () => {
    const lab = await makeLab();
    mkdirSync(`${lab.tmp}/net.d`);
    const file = `${lab.tmp}/net.d/pods.conflist`;
    const log = `${lab.tmp}/daemon.log`;
    const less = watchedList(lab, 'pods', '10.66.0.0/24');
    const whole = { ...less, plugins: [...less.plugins, { type: 'tuning', mtu: 1400 }] };
    writeFileSync(file, JSON.stringify(whole));
    await attach(lab, whole, 8080);
    const daemon = await startWatcher(lab, { watchSeconds: 3600 });
    const told = () =>
      wholeLines(log)
        .filter(line => line.includes('a list has other plugins than before'))
        .map(line => JSON.parse(line));
    writeFileSync(file, JSON.stringify(less));
    await until(() => told().length === 1);
    const { container } = await attach(lab, less, 8081);
    // Written beside and renamed, as installers do it.
    writeFileSync(`${file}.new`, JSON.stringify(whole));
    renameSync(`${file}.new`, file);
    await until(() => told().length === 2);
    const [lost, gained] = told();
    expect(lost).toMatchObject({ level: 'warn', network: 'pods', lost: 'tuning', file, owner: 0 });
    expect(gained).toMatchObject({ network: 'pods', gained: 'tuning', made_with_others: container.id });
    expect(gained.lost).toBeUndefined();
    expect(Date.parse(gained.placed)).toBeGreaterThan(Date.parse(lost.placed));
    // A change of anything else is none of plugins.
    writeFileSync(file, JSON.stringify({ ...whole, catena: { watch: 'observe' } }));
    await Bun.sleep(1_000);
    expect(told()).toHaveLength(2);
    // While no daemon runs, and with a policy that the next one finds.
    expect(await daemon.stop()).toBe(0);
    writeFileSync(file, JSON.stringify({ ...less, catena: { lists: 'restore' } }));
    await startWatcher(lab, { watchSeconds: 3600 });
    await until(() => told().length === 3);
    expect(told()[2]).toMatchObject({ network: 'pods', lost: 'tuning', file });
    await until(() => JSON.parse(readFileSync(file, 'utf8')).plugins.length === whole.plugins.length);
  });

  test('puts back what a list lost if it says so, keeps what others added, and gives up against a program that does not', async () => {
    const lab = await makeLab();
    mkdirSync(`${lab.tmp}/net.d`);
    const file = `${lab.tmp}/net.d/pods.conflist`;
    const log = `${lab.tmp}/daemon.log`;
    const less = watchedList(lab, 'pods', '10.66.0.0/24');
    const tuning = { type: 'tuning', mtu: 1400 };
    const whole = { ...less, plugins: [...less.plugins, tuning], catena: { lists: 'restore' } };
    writeFileSync(file, JSON.stringify(whole));
    chmodSync(file, 0o640);
    await attach(lab, whole, 8080);
    await startWatcher(lab, { watchSeconds: 3600 });
    const said = (what: string) => wholeLines(log).filter(line => line.includes(what));
    const types = () => JSON.parse(readFileSync(file, 'utf8')).plugins.map(({ type }: Row) => type);
    const own = less.plugins.map(({ type }: Row) => type);
    const mesh = { type: 'mesh-cni', kubeconfig: '/etc/mesh' };
    // An installer of a mesh, which knows the list as it was once, and loses the key of the policy.
    writeFileSync(file, JSON.stringify({ ...less, plugins: [...less.plugins, mesh] }));
    await until(() => said('a list has got its plugins back').length === 1);
    expect(types()).toEqual([...own, 'tuning', 'mesh-cni']);
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ catena: { lists: 'restore' } });
    expect(statSync(file).mode & 0o777).toBe(0o640);
    expect(JSON.parse(said('a list has got its plugins back')[0] ?? '')).toMatchObject({
      advice: 'to leave a plugin out, write "catena": {"lists": "tell"} into the list as well',
      network: 'pods',
      gained: 'tuning',
      file,
    });
    for (const round of [2, 3]) {
      writeFileSync(file, JSON.stringify(less));
      await until(() => said('a list has got its plugins back').length === round);
    }
    writeFileSync(file, JSON.stringify(less));
    await until(() => said('a list cannot get its plugins back').length === 1);
    expect(types()).toEqual(own);
  });

  test('follows a configuration directory that appears later, and one that takes its place', async () => {
    const lab = await makeLab();
    const dir = `${lab.tmp}/net.d`;
    const list = watchedList(lab, 'pods', '10.66.0.0/24');
    await attach(lab, list, 8080);
    const daemon = await startWatcher(lab, {});
    const write = (at: string, policy: string) => {
      mkdirSync(at);
      writeFileSync(`${at}/pods.conflist`, JSON.stringify({ ...list, catena: { watch: policy } }));
    };
    await lab.run(lab.host, ['ip', 'addr', 'flush', 'dev', 'br-pods']);
    await untilWatch(daemon, one => one.drifted.length === 1);
    write(dir, 'repair');
    await untilWatch(daemon, one => one.drifted.length === 0 && one.repairs.repaired === 1);
    write(`${dir}.new`, 'observe');
    renameSync(dir, `${dir}.old`);
    renameSync(`${dir}.new`, dir);
    await Bun.sleep(3_000);
    await lab.run(lab.host, ['ip', 'addr', 'flush', 'dev', 'br-pods']);
    await untilWatch(daemon, one => one.drifted.length === 1);
    // A change of a file in the directory that took its place counts, too.
    writeFileSync(`${dir}/pods.conflist`, JSON.stringify({ ...list, catena: { watch: 'repair' } }));
    await untilWatch(daemon, one => one.drifted.length === 0 && one.repairs.repaired === 2);
  });

  test('collects what outlived its namespace of every runtime where it may repair; elsewhere it only reports', async () => {
    const lab = await makeLab();
    const lists = {
      ours: watchedList(lab, 'ours', '10.66.0.0/24', { catena: { watch: 'repair' } }),
      others: watchedList(lab, 'others', '10.67.0.0/24', { catena: { watch: 'repair' } }),
      observed: watchedList(lab, 'observed', '10.68.0.0/24'),
      standing: watchedList(lab, 'standing', '10.69.0.0/24', { catena: { watch: 'repair' } }),
    };
    const made: Record<string, Container> = {};
    for (const [i, [name, list]] of Object.entries(lists).entries())
      made[name] = (await attach(lab, list, 8080 + i)).container;
    withoutOurs(`${lab.tmp}/cni/results/others-${made.others?.id}-eth0`);
    const daemon = await startWatcher(lab, { watchSeconds: 0.5, leftoverSeconds: 0.5 });
    for (const name of ['ours', 'others', 'observed']) await lab.remove(made[name] as Container);
    await untilWatch(
      daemon,
      one => one.attachments === 2 && one.outlived === 1 && one.deletions.deleted === 2,
    );
    const log = () => wholeLines(`${lab.tmp}/daemon.log`);
    await until(() => log().some(line => line.includes('outlived its namespace')));
    await Bun.sleep(1_500);
    const reported = log().filter(line => line.includes('outlived its namespace'));
    expect(reported).toHaveLength(1);
    expect(reported[0]).toContain(String(made.observed?.id));
    expect(reported[0]).toContain('catena gc --gone');
    const page = await (await daemon.fetch('/metrics')).text();
    expect(page).toContain('catena_watch_deletions_total{outcome="deleted"} 2');
    // Each was a request of the daemon, which traces and history have, too.
    for (const network of ['ours', 'others'])
      expect(page).toContain(`catena_requests_total{verb="DEL",network="${network}",code="0"} 1`);
    const { items } = (await (await daemon.fetch('/v1/traces')).json()) as { items: Row[] };
    const deleted = items.filter(({ verb }) => verb === 'DEL').map(({ network, code }) => [network, code]);
    expect(deleted.sort()).toEqual([
      ['others', 0],
      ['ours', 0],
    ]);
    const owners = readdirSync(`${lab.tmp}/leases`).flatMap(dir =>
      readdirSync(`${lab.tmp}/leases/${dir}`)
        .filter(name => /^10\./.test(name))
        .map(() => dir),
    );
    expect(owners.sort()).toEqual(['observed', 'standing']);
    const rules = JSON.stringify(await lab.nft(lab.host, 'list', 'ruleset'));
    for (const name of ['ours', 'others']) expect(rules).not.toContain(String(made[name]?.id));
    for (const name of ['observed', 'standing']) expect(rules).toContain(String(made[name]?.id));
  });
});
