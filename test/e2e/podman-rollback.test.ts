// Can Debian's plugins take over from ours under running containers of Podman, with nothing of ours or of the containers left?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { CATENA } from '../helpers/catena.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Machine, withMachine } from '../helpers/machine.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { requiresPodman, startPodman } from '../helpers/podman.ts';
import { findReachable, findUnreachable } from '../helpers/published.ts';
import { describeRoot, requires, requiresReference } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

// Many processes each, which a busy machine takes its time for.
setDefaultTimeout(deadline(240_000));

const TYPES = ['bridge', 'host-local', 'portmap', 'firewall', 'tuning', 'loopback'];
const PUBLISH = ['--publish', '8080:80', '--publish', '5353:53/udp'];

/** Devices, rules and files of containers; bridges and fixed chains are their network's. */
async function leftOf({ lab, path }: Machine): Promise<string[]> {
  const links = await lab.ip(lab.host, 'link', 'show');
  const rules = (await lab.nft(lab.host, 'list', 'ruleset')).map(row => JSON.stringify(row));
  const files = ['/var/lib/cni', '/run/cni', '/run/catena', '/var/lib/catena'].flatMap(dir => {
    const there = fs.existsSync(path(dir)) ? fs.readdirSync(path(dir), { recursive: true }) : [];
    return there.map(name => `${dir}/${name}`).filter(file => !fs.statSync(path(file)).isDirectory());
  });
  return [
    ...links.flatMap(({ ifname, linkinfo }) =>
      ['veth', 'ifb'].includes(linkinfo?.info_kind) && ifname !== 'outside0' ? [ifname] : [],
    ),
    ...rules.filter(text =>
      /catena|10\.8[89]\.0\.[2-9]\b|fd89::[2-9]\b|\b(8080|5353)\b|CNI-[0-9a-f]/.test(text),
    ),
    ...files.filter(file => !/\/(last_reserved_ip\.\d|lock)$/.test(file)),
  ];
}

describeRoot(
  'running containers of Podman',
  () => {
    test("keep their network while Debian's plugins replace ours, which leave nothing, and are deleted completely", async () => {
      await withMachine(async machine => {
        const { lab } = machine;
        const catena = (...args: string[]) => machine.run([CATENA, ...args], { timeoutMs: 120_000 });
        await machine.ok(['umount', '/opt/cni/bin']);
        await machine.ok([CATENA, 'install']);
        const podman = await startPodman(machine);
        const outside = await lab.outside();
        await podman.run(
          'network',
          'create',
          '--subnet',
          '10.89.0.0/24',
          '--ipv6',
          '--subnet',
          'fd89::/64',
          'dual',
        );
        const web = await podman.runContainer('web', ...PUBLISH);
        await podman.runContainer('both', '--network', 'podman', '--network', 'dual');
        const refused = await catena('uninstall', '--purge');
        expect([refused.exitCode, refused.stdout]).toEqual([1, expect.stringContaining('--to <dir> names')]);

        const gone = await catena('uninstall', '--purge', '--hand-over', '--to', REFERENCE_BIN_DIR);
        expect([gone.exitCode, gone.stderr]).toEqual([0, '']);
        expect(gone.stdout).toContain('attachments: 3 handed over');
        expect(fs.readdirSync(machine.path('/opt/cni/bin'))).toEqual([]);
        expect(['/run/catena', '/var/lib/catena'].filter(dir => fs.existsSync(machine.path(dir)))).toEqual(
          [],
        );
        const tables = (await lab.nft(lab.host, 'list', 'tables')).map(({ table }) => table.name);
        expect(tables.filter((name: string) => name.startsWith('catena'))).toEqual([]);

        const container = machine.netnsOf(web.pid);
        expect(await findUnreachable(lab, { container, outside })).toEqual([]);
        expect(await ping(lab, container, outside.address.v4)).toBe(true);

        // As a package manager would.
        await machine.ok(['cp', ...TYPES.map(type => `${REFERENCE_BIN_DIR}/${type}`), '/opt/cni/bin']);
        await podman.run('rm', '--force', '--time', '0', 'web', 'both');
        expect(await leftOf(machine)).toEqual([]);
        expect(await findReachable(lab, outside)).toEqual([]);
      });
    });
  },
  requires('ip', 'nft', 'iptables', 'ping'),
  requiresPodman(),
  requiresReference(...TYPES),
);
