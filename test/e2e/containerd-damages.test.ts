// Does the daemon notice every damage to a pod of containerd, repair what it can, and leave alone what is sound?
import { expect, setDefaultTimeout, test } from 'bun:test';
import { requiresContainerd, withContainerd } from '../helpers/containerd.ts';
import type { Cri, Pod } from '../helpers/cri.ts';
import { BEYOND_REPAIR, scenesApart, shopList } from '../helpers/damage-scenes.ts';
import {
  type DamagedNode,
  damageOneByOne,
  expectOutcomes,
  prepareNode,
  startRepairing,
} from '../helpers/damage-table.ts';
import { deadline } from '../helpers/deadline.ts';
import type { Machine } from '../helpers/machine.ts';
import type { Row } from '../helpers/netns.ts';
import { expectWays, type Maker, tightList } from '../helpers/node-damage.ts';
import { PUBLISHED } from '../helpers/published.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

setDefaultTimeout(deadline(420_000));

describeRoot(
  'pods of containerd under a daemon that repairs',
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
      // Each pod has all networks, in the order of the names.
      await withContainerd(
        [shopList('shop', 66), stillList(), tightList(3)],
        async ({ machine, containerd, outside }) => {
          const cri = containerd.cri();
          const web = await cri.runPod({ name: 'web', ports: PUBLISHED });
          const peer = await cri.runPod({ name: 'peer' });
          await startRepairing(machine);
          const [own] = await machine.lab.ip(machine.netnsOf(peer.pid), '-4', 'addr', 'show', 'dev', 'eth1');
          const node = await prepareNode(machine, outside, {
            bridge: 'shop0',
            gateway: '10.66.0.1/24',
            subnet: '10.66.0.0/24',
            file: 'shop.conflist',
            web,
            neighbour: { pid: peer.pid, address: own?.addr_info[0].local },
          });
          await body(node, makerOf(machine, cri));
          for (const { id } of [web, peer]) await endPod(cri, id);
          cri.close();
          expect((await machine.holds()).files).toEqual([]);
        },
      );
    }
  },
  requires('ip', 'nft', 'tc', 'ss'),
  requiresContainerd(),
);

/** A second network of each pod, with a bridge of its own, which is not damaged. */
function stillList(): Row {
  const ipam = { type: 'host-local', subnet: '10.77.0.0/24' };
  const bridge = { type: 'bridge', bridge: 'still0', isGateway: true, ipam };
  return { cniVersion: '1.0.0', name: 'still', plugins: [bridge, { type: 'firewall' }] };
}

function makerOf(machine: Machine, cri: Cri): Maker {
  const pods = new Map<string, Pod>();
  return {
    async make(name) {
      const pod = await cri.runPod({ name });
      pods.set(name, pod);
      return pod;
    },
    // containerd leaves the network to kubelet's StopPodSandbox.
    async crash(name) {
      await machine.ok(['kill', '-KILL', String(pods.get(name)?.pid)]);
    },
    remove: name => endPod(cri, pods.get(name)?.id ?? ''),
  };
}

async function endPod(cri: Cri, id: string): Promise<void> {
  await cri.stopPod(id);
  await cri.removePod(id);
}
