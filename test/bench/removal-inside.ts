// How long does the kernel take to delete devices one by one, as one group, and together with a bridge? Run by removal.ts inside a
// fake host.
import { createLink, getLink, removeLink, removeLinks, setLink } from '../../src/netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Contestant, takeTurns, timed } from './measure.ts';

const [pods = '32', rounds = '3'] = process.argv.slice(2);
const socket = new NetlinkSocket(NETLINK_ROUTE);

/** The devices of the given number of pods with a limit: a pair and an IFB device each. @returns indexes */
function makeDevices(): number[] {
  return Array.from({ length: Number(pods) }, (_, i) => i).flatMap(i => {
    createLink(socket, { name: `veth${i}`, kind: 'veth', peer: { name: `peer${i}` } });
    createLink(socket, { name: `ifb${i}`, kind: 'ifb' });
    return [`veth${i}`, `ifb${i}`].map(name => getLink(socket, name).index);
  });
}

function contestant(name: string, remove: (indexes: readonly number[]) => void): Contestant {
  return {
    name,
    async round() {
      const indexes = makeDevices();
      return { DEL: await timed(() => remove(indexes)) };
    },
  };
}

/** The devices of the last pod of a bridge: the host end of its pair, then the bridge. @returns indexes */
function makeLastPod(): readonly [number, number] {
  createLink(socket, { name: 'last-bridge', kind: 'bridge' });
  const bridge = getLink(socket, 'last-bridge').index;
  createLink(socket, { name: 'last', kind: 'veth', master: bridge, peer: { name: 'peer' } });
  for (const name of ['last-bridge', 'last', 'peer'])
    setLink(socket, getLink(socket, name).index, { up: true });
  return [getLink(socket, 'last').index, bridge];
}

/** The least that the kernel takes for a DEL of the last pod: without the bridge, with it afterwards, with it in one request. */
const lastPod: Contestant = {
  name: 'last pod',
  async round() {
    const [pair, bridge] = makeLastPod();
    const alone = await timed(() => removeLink(socket, pair));
    const after = await timed(() => removeLink(socket, bridge));
    const both = makeLastPod();
    const together = await timed(() => removeLinks(socket, both));
    return { pair: alone, 'pair, then bridge': alone + after, 'pair with bridge': together };
  },
};

const contestants = [
  lastPod,
  contestant('single', indexes => {
    for (const index of indexes) removeLink(socket, index);
  }),
  contestant('group', indexes => removeLinks(socket, indexes)),
];
process.stdout.write(JSON.stringify([...(await takeTurns(contestants, Number(rounds), 1))]));
process.exit(0);
