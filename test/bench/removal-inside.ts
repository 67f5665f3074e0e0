// How long does the kernel take to delete devices one by one, and as one group? Run by removal.ts inside a fake host.
import { createLink, getLink, removeLink, removeLinks } from '../../src/netlink/rtnl/link.ts';
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

const contestants = [
  contestant('single', indexes => {
    for (const index of indexes) removeLink(socket, index);
  }),
  contestant('group', indexes => removeLinks(socket, indexes)),
];
process.stdout.write(JSON.stringify([...(await takeTurns(contestants, Number(rounds), 1))]));
process.exit(0);
