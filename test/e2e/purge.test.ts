// Is a node after `catena uninstall --purge` what it was before `catena install`?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { CATENA } from '../helpers/catena.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Machine, withMachine } from '../helpers/machine.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

// Many processes each, which a busy machine takes its time for.
setDefaultTimeout(deadline(180_000));

const NETWORK = {
  cniVersion: '1.1.0',
  name: 'podnet',
  plugins: [
    {
      type: 'bridge',
      bridge: 'cni0',
      isDefaultGateway: true,
      ipMasq: true,
      macspoofchk: true,
      ipam: { type: 'host-local', ranges: [[{ subnet: '10.22.0.0/24' }], [{ subnet: 'fd22::/64' }]] },
    },
    { type: 'portmap', capabilities: { portMappings: true } },
    { type: 'firewall', ingressPolicy: 'same-bridge' },
    { type: 'bandwidth', ingressRate: 1e7, ingressBurst: 2e6, egressRate: 1e7, egressBurst: 2e6 },
    { type: 'tuning', mtu: 1400 },
  ],
};
const CAP = '{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}';

/** Everything on the node that a network could change: files by name and content, and the kernel. */
async function snapshot(machine: Machine) {
  const { lab } = machine;
  const files = await machine.ok([
    'sh',
    '-c',
    // Sockets of the machine's own and namespaces are not files; mkdir and rmdir of a neighbour change only times.
    'find /opt /etc/cni /etc/systemd /run /var/lib -path /run/netns/* -prune -o -printf "%y %p %s\\n" | grep -v "^d" | sort; ' +
      'find /opt /etc/cni /run /var/lib -type d | sort',
  ]);
  const saved = await Promise.all(
    ['iptables-save', 'ip6tables-save'].map(program => machine.ok([program], {})),
  );
  return {
    files: files.split('\n'),
    kernel: await lab.dump(lab.host),
    saved: saved.flatMap(text => text.split('\n').filter(line => !line.startsWith('#'))),
  };
}

const newNamespace = (machine: Machine, name: string) => machine.ok(['ip', 'netns', 'add', name]);
const removeNamespace = (machine: Machine, name: string) => machine.ok(['ip', 'netns', 'delete', name]);

describeRoot(
  'catena uninstall --purge',
  () => {
    test('is refused while a container stands, and leaves nothing at all afterwards', async () => {
      await withMachine(async machine => {
        const catena = (...args: string[]) => machine.run([CATENA, ...args], { timeoutMs: 120_000 });
        await machine.ok(['umount', '/opt/cni/bin']);
        for (const key of ['net/ipv4/ip_forward', 'net/ipv6/conf/all/forwarding'])
          await machine.lab.sysctl(machine.lab.host, key, 1);
        // The tables of iptables and their own chains stay, once there are any.
        for (const program of ['iptables', 'ip6tables'])
          for (const command of ['-A', '-D']) await machine.ok([program, command, 'FORWARD', '-j', 'ACCEPT']);
        const before = await snapshot(machine);

        const file = `${machine.lab.tmp}/podnet.conflist`;
        fs.writeFileSync(file, JSON.stringify(NETWORK));
        expect((await catena('install', file)).exitCode).toBe(0);
        machine.start(['/opt/cni/bin/catena', 'daemon'], `${machine.lab.tmp}/daemon.log`);
        await until(async () => fs.existsSync(machine.path('/run/catena/catena.sock')));
        for (const name of ['web', 'lost']) {
          await newNamespace(machine, name);
          const added = await catena('add', 'podnet', name, ...(name === 'web' ? ['--cap', CAP] : []));
          expect([added.exitCode, added.stderr]).toEqual([0, '']);
        }
        // Its runtime never calls DEL.
        await removeNamespace(machine, 'lost');

        // As if a newer release were installed.
        const manifest = machine.path('/opt/cni/bin/.catena-install.json');
        const text = fs.readFileSync(manifest, 'utf8');
        fs.writeFileSync(manifest, JSON.stringify({ ...JSON.parse(text), catena: '99.0.0' }));
        const older = await catena('install', '--force');
        expect([older.exitCode, older.stderr]).toEqual([
          1,
          expect.stringMatching(/release 99\.0\.0 .* is newer than this one.* of 1 attachment \(podnet /),
        ]);
        fs.writeFileSync(manifest, text);

        const planned = await catena('uninstall', '--purge', '--dry-run', '--force');
        expect([planned.exitCode, planned.stderr]).toEqual([0, '']);
        expect(planned.stdout).toContain('table "inet catena_masquerade"');
        const refused = await catena('uninstall', '--purge');
        expect(refused.exitCode).toBe(1);
        expect(refused.stdout).toMatch(/^refused {6}podnet .*there is no .*"bridge"/m);
        expect(fs.existsSync(machine.path('/opt/cni/bin/bridge'))).toBe(true);

        expect((await catena('del', 'podnet', 'web')).exitCode).toBe(0);
        await removeNamespace(machine, 'web');
        const purged = await catena('uninstall', '--purge');
        expect([purged.exitCode, purged.stderr]).toEqual([0, '']);
        expect(purged.stdout).not.toMatch(/^keep/m);
        for (const what of ['daemon, process', 'table "bridge catena_macspoof"', 'device "cni0"'])
          expect(purged.stdout).toContain(what);
        expect(machine.processes('catena', 'catena-core')).toEqual([]);
        expect(await snapshot(machine)).toEqual(before);
      });
    });

    test("leaves a bridge with another's device on it, which the kernel would delete as well", async () => {
      await withMachine(async machine => {
        const catena = (...args: string[]) => machine.ok([CATENA, ...args], { timeoutMs: 120_000 });
        const plain = { ...NETWORK, plugins: NETWORK.plugins.slice(0, 1) };
        // It is the build, which would be uninstalled.
        await machine.ok(['umount', '/opt/cni/bin']);
        machine.write('/etc/cni/net.d/podnet.conflist', JSON.stringify(plain));
        for (const name of ['web', 'other']) await newNamespace(machine, name);
        for (const verb of ['add', 'del']) await catena(verb, 'podnet', 'web', '--bin-dir', BIN_DIR);
        const macvlan = ['link', 'cni0', 'name', 'net1', 'netns', 'other', 'type', 'macvlan'];
        await machine.ok(['ip', 'link', 'add', ...macvlan]);
        const purged = await catena('uninstall', '--purge');
        const why = 'a device in /run/netns/other is on it';
        expect(purged).toContain(`keep     device "cni0" of kind "bridge": ${why}`);
        await machine.ok(['ip', '-n', 'other', 'link', 'show', 'net1']);
      });
    });
  },
  requires('ip', 'nft', 'iptables'),
);
