// Does `catena gc --gone` delete what outlived its namespace, and nothing whose namespace stands?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { constants } from 'node:os';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { runOk } from '../helpers/command.ts';
import { withoutOurs } from '../helpers/journal.ts';
import { type Container, directories, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresUpperKind } from '../helpers/skip.ts';
import { until, untilExecuted } from '../helpers/until.ts';

/** Until the process has a handler for the signal, which ends it before. */
async function untilCaught(pid: number, signal: 'SIGINT'): Promise<void> {
  const bit = 1n << BigInt(constants.signals[signal] - 1);
  await until(() => {
    const [, caught = '0'] =
      /^SigCgt:\s*([\da-f]+)$/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    return (BigInt(`0x${caught}`) & bit) !== 0n;
  });
}

describeRoot('catena gc --gone', () => {
  const makeLab = useLabs();

  test('deletes attachments of every runtime whose namespace is gone, without their list', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab));
    const names = ['standing', 'unnamed', 'ours', 'others'] as const;
    const containers = Object.fromEntries(
      await Promise.all(names.map(async name => [name, await lab.container()] as const)),
    ) as Record<(typeof names)[number], Container>;
    const { standing, unnamed, ours, others } = containers;
    for (const [i, container] of Object.values(containers).entries()) {
      const ports = [{ hostPort: 8080 + i, containerPort: 80, protocol: 'tcp' }];
      await chain.add(container, { cap: { portMappings: ports } });
    }
    const nameOf = (id: string) => names.find(name => containers[name].id === id);
    const gone = async (env: Row, ...args: string[]) => {
      const argv = [`${BIN_DIR}/catena`, 'gc', '--gone', '--json', '--bin-dir', BIN_DIR, ...args];
      const { stdout, stderr, exitCode } = await lab.run(lab.host, argv, {
        env: { ...directories(lab.tmp), ...env },
        timeoutMs: 60_000,
      });
      if (stdout === '') throw new Error(stderr);
      const { items } = JSON.parse(stdout) as { items: Row[] };
      return { exitCode, found: items.map(one => [nameOf(one.containerId), one.state]).sort() };
    };
    const leased = async () => {
      const owners = (await chain.leases()).map(file => fs.readFileSync(file, 'utf8').split(/\s/)[0] ?? '');
      return [...new Set(owners.map(nameOf))].sort();
    };
    expect(await gone({}, '--grace', '0')).toEqual({ exitCode: 0, found: [] });

    // One is another runtime's; the list is gone, too.
    withoutOurs(`${lab.tmp}/cni/results/podnet-${others.id}-eth0`);
    fs.rmSync(`${lab.tmp}/podnet.conflist`);
    // A namespace without a name, which a process is in.
    await untilExecuted(lab.start(unnamed, ['sleep', '1000']), 'sleep');
    await runOk(['ip', 'netns', 'delete', unnamed.name]);
    for (const one of [ours, others]) await lab.remove(one);
    // The kernel deletes a namespace in the background.
    await until(async () => (await lab.ip(lab.host, 'link', 'show', 'master', 'br0')).length === 2);

    const doctor = async () => {
      const argv = [`${BIN_DIR}/catena`, 'doctor', '--json', '--bin-dir', BIN_DIR];
      const { stdout } = await lab.run(lab.host, argv, { env: directories(lab.tmp), timeoutMs: 60_000 });
      const { findings } = JSON.parse(stdout) as { findings: Row[] };
      return findings
        .filter(one => one.id === 'state.abandoned')
        .map(one => [one.severity, one.found, one.mend]);
    };
    // What GC keeps, no command of doctor's deletes.
    const unseen =
      'the namespace of 1 attachment of network "podnet" is not visible here, but its devices on the host are there';
    expect(await doctor()).toEqual([
      [
        'warning',
        '2 attachments of network "podnet" outlived their namespace: the runtime did not run DEL',
        'catena gc --gone',
      ],
      ['info', unseen, undefined],
    ]);

    const found = [
      ['others', 'found'],
      ['ours', 'found'],
      ['unnamed', 'kept'],
    ];
    expect(await gone({}, '--dry-run')).toEqual({ exitCode: 0, found });
    // What it was interrupted in is no sign that there is nothing.
    const env = Object.entries(directories(lab.tmp)).map(one => one.join('='));
    const line = [`${BIN_DIR}/catena`, 'gc', '--gone', '--grace', '2', '--bin-dir', BIN_DIR];
    const interrupted = lab.start(lab.host, ['env', ...env, ...line]);
    await untilCaught(interrupted.pid, 'SIGINT');
    interrupted.kill('SIGINT');
    expect(await interrupted.stdout.text()).toMatch(/^keep .*: the command was interrupted before its turn/m);
    expect(await interrupted.exited).toBe(1);
    expect(await gone({}, 'othernet', '--grace', '0')).toEqual({ exitCode: 0, found: [] });
    expect(await leased()).toEqual(['others', 'ours', 'standing', 'unnamed']);
    expect(await gone({}, '--grace', '0')).toEqual({
      exitCode: 0,
      found: found.map(([name, state]) => [name, state === 'found' ? 'deleted' : state]),
    });
    expect(await leased()).toEqual(['standing', 'unnamed']);
    expect(await doctor()).toEqual([['info', unseen, undefined]]);
    const rules = JSON.stringify(await lab.nft(lab.host, 'list', 'ruleset'));
    for (const { id } of [ours, others]) expect(rules).not.toContain(id);
    for (const { id } of [standing, unnamed]) expect(rules).toContain(id);
    expect(fs.readdirSync(`${lab.tmp}/cni/results`).length).toBe(2);

    // The machine is restarted. What the node still has of an attachment shows that it is a later one of the same name.
    await lab.remove(standing);
    await until(async () => (await lab.ip(lab.host, 'link', 'show', 'master', 'br0')).length === 1);
    expect(await gone({ CATENA_BOOT_ID: 'a later boot' })).toEqual({
      exitCode: 0,
      found: [
        ['standing', 'deleted'],
        ['unnamed', 'kept'],
      ],
    });
    expect(await leased()).not.toContain('standing');
    expect((await lab.ip(lab.host, 'link', 'show', 'master', 'br0')).length).toBe(1);
  });

  test.skipIf(requiresUpperKind('macvlan') !== undefined)(
    'keeps a macvlan, whose end nothing on the host shows, and doctor prints what deletes it',
    async () => {
      const lab = await makeLab();
      await lab.outside();
      const subnet = '10.202.0.0/30';
      const ipam = { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` };
      const plugins = [{ type: 'macvlan', master: 'outside0', ipam }];
      const chain = writeChain(lab, { cniVersion: '1.1.0', name: 'podnet', plugins });
      const container = await lab.container();
      await chain.add(container);
      await lab.remove(container);
      const env = {
        ...directories(lab.tmp),
        CNI_PATH: BIN_DIR,
        NETCONFPATH: lab.tmp,
        PATH: `${BIN_DIR}:${process.env.PATH}`,
      };
      const run = (line: string) => lab.run(lab.host, ['/bin/sh', '-c', line], { env, timeoutMs: 60_000 });
      const doctor = async () => {
        const { findings } = JSON.parse((await run('catena doctor --json')).stdout) as { findings: Row[] };
        const ids = ['state.abandoned', 'ipam.pools'];
        return findings.filter(({ id, severity }) => ids.includes(id) && severity !== 'ok');
      };
      expect((await run('catena gc --gone --grace 0')).stdout).toContain('catena del deletes what is left');
      const found = await doctor();
      const mend = `catena del podnet '' --container-id ${container.id} --ifname eth0  # if the containers are gone`;
      expect(found.map(one => [one.id, one.severity, one.mend])).toEqual([
        ['ipam.pools', 'error', mend],
        ['state.abandoned', 'info', mend],
      ]);
      expect(await run(mend)).toMatchObject({ exitCode: 0, stderr: '' });
      expect([await doctor(), await chain.leases()]).toEqual([[], []]);
    },
  );

  test('takes no options that say what to keep, and GC without it needs a network', async () => {
    const lab = await makeLab();
    const gc = (...args: string[]) => lab.run(lab.host, [`${BIN_DIR}/catena`, 'gc', ...args]);
    expect((await gc('--gone', '--all')).stderr).toContain('Cannot use both --all and --gone');
    expect((await gc('--gone', '--grace', 'long')).stderr).toContain('expected a number of seconds');
    expect((await gc('--all')).stderr).toContain('name the network, or use --gone');
  });
});
