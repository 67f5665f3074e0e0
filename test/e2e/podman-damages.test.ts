// Does the daemon notice every damage to a container of podman, repair what it can, and leave alone what is sound?
import { expect, setDefaultTimeout, test } from 'bun:test';
import { BEYOND_REPAIR, quietList, scenesApart, shopList } from '../helpers/damage-scenes.ts';
import {
  type DamagedNode,
  damageOneByOne,
  expectOutcomes,
  prepareNode,
  startRepairing,
} from '../helpers/damage-table.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Machine, withMachine } from '../helpers/machine.ts';
import { expectWays, type Maker, tightList } from '../helpers/node-damage.ts';
import { type Podman, requiresPodman, startPodman } from '../helpers/podman.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

setDefaultTimeout(deadline(420_000));

describeRoot(
  'containers of podman under a daemon that repairs',
  () => {
    test.each(scenesApart(3))(
      'are repaired after each damage, or the reason why not is told; a transfer of a neighbour goes on, part %#',
      (...scenes) => onNode(node => expectOutcomes(node, scenes)),
    );

    test('are repaired after damages of the node; a damage beyond repair is told', async () => {
      await onNode(async (node, maker) => {
        await expectWays(node, maker);
        const [told] = await damageOneByOne(node, [BEYOND_REPAIR]);
        expect(told?.outcome).toBe(BEYOND_REPAIR.outcome);
      });
    });

    async function onNode(body: (node: DamagedNode, maker: Maker) => Promise<void>): Promise<void> {
      await withMachine(async machine => {
        const podman = await startPodman(machine);
        const outside = await machine.lab.outside();
        for (const list of [shopList('shop', 66), quietList('quiet', 77), tightList(1)])
          machine.write(`/etc/cni/net.d/66-${list.name}.conflist`, JSON.stringify(list));
        const web = await podman.runContainer(
          'web',
          '--network',
          'shop',
          '--publish',
          '8080:80',
          '--publish',
          '5353:53/udp',
        );
        const peer = await podman.runContainer('peer', '--network', 'quiet');
        await startRepairing(machine);
        const node = await prepareNode(machine, outside, {
          bridge: 'shop0',
          gateway: '10.66.0.1/24',
          subnet: '10.66.0.0/24',
          file: '66-shop.conflist',
          web,
          neighbour: { ...peer, address: peer.addresses.quiet?.v4 ?? '' },
        });
        await body(node, makerOf(machine, podman));
        await podman.run('rm', '--force', '--time', '0', 'web', 'peer');
        expect((await machine.holds()).files).toEqual([]);
      });
    }
  },
  requires('ip', 'nft', 'tc', 'ss'),
  requiresPodman(),
);

function makerOf(machine: Machine, podman: Podman): Maker {
  return {
    make: name => podman.runContainer(name, '--network', 'tight'),
    async crash(name) {
      const state = await podman.run('inspect', '--format', '{{.State.ConmonPid}} {{.State.Pid}}', name);
      // In this order: conmon would have podman clean up.
      for (const pid of state.split(' ')) await machine.ok(['kill', '-KILL', pid]);
    },
    async remove(name) {
      await podman.run('rm', '--force', '--time', '0', name);
    },
  };
}
