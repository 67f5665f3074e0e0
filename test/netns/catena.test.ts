// Does the delegate runner give a container all of its networks, or none, and take them all away again?
import { expect, test } from 'bun:test';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import type { PluginReply } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

// Installed once per host, and empty without attachments.
const SKELETON = { ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'] };

/** A network whose bridge, subnet and leases are its own. */
function bridged(lab: Lab, name: string, net: number, more: Row = {}, plugins: Row[] = []): Row {
  return {
    cniVersion: '1.1.0',
    name,
    plugins: [
      {
        type: 'bridge',
        bridge: `br-${name}`,
        isGateway: true,
        ...more,
        ipam: {
          type: 'host-local',
          ranges: [[{ subnet: `10.${net}.0.0/24` }], [{ subnet: `fd${net}::/64` }]],
          dataDir: `${lab.tmp}/leases`,
          ...more.ipam,
        },
      },
      ...plugins,
    ],
  };
}

function runner(lab: Lab, more: Row): Row {
  return { cniVersion: '1.1.0', name: 'pods', type: 'catena', confDir: `${lab.tmp}/net.d`, ...more };
}

const call = (
  lab: Lab,
  command: string,
  conf: Row,
  container: Container,
  more: Row = {},
): Promise<PluginReply> => lab.plugin('catena', { command, conf, container, ...more });

const ifnames = async (lab: Lab, container: Container) =>
  (await lab.ip(container, 'link')).map(({ ifname }) => ifname);

const files = async (lab: Lab) => {
  const { stdout } = await lab.run(lab.host, ['find', lab.tmp, '-type', 'f', '-path', '*', '-size', '+0']);
  const kept = /\/(run|net\.d)\/|\/last_reserved_ip|\/lock$|\/\.catena-|\.conflist$/;
  return stdout.split('\n').filter(file => file !== '' && !kept.test(file));
};

describeRoot('the delegate runner', () => {
  test('[1.1.0] gives two networks, each with traffic, and takes both away', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const conf = runner(lab, {
        delegates: [bridged(lab, 'red', 41, { isDefaultGateway: true }), bridged(lab, 'blue', 42)],
      });
      const before = await lab.dump(lab.host, SKELETON);
      const added = await call(lab, 'ADD', conf, one);
      expect(added).toMatchObject({ exitCode: 0, stderr: '' });
      expect(added.result.cniVersion).toBe('1.1.0');
      expect(added.result.ips.map((ip: Row) => ip.address)).toEqual(['10.41.0.2/24', 'fd41::2/64']);
      expect(await ifnames(lab, one)).toEqual(['lo', 'eth0', 'net1']);
      expect(await call(lab, 'ADD', conf, two)).toMatchObject({ exitCode: 0 });
      for (const address of [
        '10.41.0.1',
        '10.42.0.1',
        'fd41::1',
        'fd42::1',
        '10.41.0.3',
        '10.42.0.3',
        'fd42::3',
      ])
        expect([address, await ping(lab, one, address)]).toEqual([address, true]);

      const prevResult = added.result;
      expect(await call(lab, 'CHECK', conf, one, { prevResult })).toMatchObject({ exitCode: 0, stdout: '' });
      for (const container of [one, two, one]) {
        expect(await call(lab, 'DEL', conf, container, { prevResult })).toMatchObject({
          exitCode: 0,
          stdout: '',
          stderr: '',
        });
      }
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await ifnames(lab, one)).toEqual(['lo']);
      expect(await files(lab)).toEqual([]);
    });
  });
});
