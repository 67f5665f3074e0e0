// Are rules of the table "nat" read as iptables itself reads them, from both packet filters of the kernel?

import { expect, test } from 'bun:test';
import type { Family } from '../../src/net/ip.ts';
import { listLegacyNat, listNftNat, type NatRule, renderRule } from '../../src/netlink/iptables/nat.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from '../../src/netlink/socket.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { type Lab, withHost } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

const CHAIN = 'CNI-0123456789abcdef01234567';

/** Rules as a plugin writes them, and some that others have. */
const RULES: Readonly<Record<Family, readonly string[]>> = {
  4: [
    `-A POSTROUTING -s 10.1.0.5/32 -m comment --comment "name: \\"a\\" id: \\"b\\"" -j ${CHAIN}`,
    '-A POSTROUTING -d 192.168.0.0/16 -j RETURN',
    '-A PREROUTING ! -s 10.128.0.0/9 -j ACCEPT',
    `-A ${CHAIN} -d 10.1.0.0/24 -m comment --comment "name: \\"a\\" id: \\"b\\"" -j ACCEPT`,
    `-A ${CHAIN} ! -d 224.0.0.0/4 -m comment --comment "back\\\\slash" -j MASQUERADE`,
  ],
  6: [
    `-A POSTROUTING -s fd00::5/128 -m comment --comment plain -j ${CHAIN}`,
    `-A ${CHAIN} -s fd01::/61 ! -d ff00::/8 -m comment --comment plain -j MASQUERADE`,
  ],
};

/** What the program prints, without what the policies of the chains come to. */
async function savedBy(lab: Lab, family: Family, mode: string): Promise<string[]> {
  const program = `${family === 4 ? 'iptables' : 'ip6tables'}-${mode}-save`;
  const { stdout } = await lab.run(lab.host, [program, '-t', 'nat']);
  return stdout.split('\n').filter(line => line.startsWith('-A'));
}

function readIn<T>(lab: Lab, read: (socket: NetlinkSocket) => T[]): T[] {
  const netns = openNetns(lab.host.path);
  try {
    return inNetns(netns, () => {
      const socket = new NetlinkSocket(NETLINK_NETFILTER);
      try {
        return read(socket);
      } finally {
        socket.close();
      }
    });
  } finally {
    closeNetns(netns);
  }
}

/** The old packet filter keeps a policy as the last rule of a chain, and the end of one's own chains as well. */
function isWritten({ source, destination, comment }: NatRule): boolean {
  return Boolean(source ?? destination ?? comment);
}

/** Comments of one word are printed without quotes. */
function inOurWords(line: string): string {
  return line.replace(/--comment ([^"\s]+)/, '--comment "$1"');
}

describeRoot(
  'rules of iptables',
  () => {
    test.each(['nft', 'legacy'])(
      '%s: are read in order, with addresses, comments and targets',
      async mode => {
        await withHost(async lab => {
          for (const family of [4, 6] as const) {
            const program = `${family === 4 ? 'iptables' : 'ip6tables'}-${mode}-restore`;
            const stdin = ['*nat', `:${CHAIN} - [0:0]`, ...RULES[family], 'COMMIT', ''].join('\n');
            expect(await lab.run(lab.host, [program, '--noflush'], { stdin })).toMatchObject({ exitCode: 0 });
            const rules = readIn(lab, socket =>
              mode === 'nft' ? listNftNat(socket, family) : listLegacyNat(family),
            );
            const expected = (await savedBy(lab, family, mode)).map(inOurWords);
            expect(expected).toHaveLength(RULES[family].length);
            // The program prints chains in an order of its own.
            expect(
              rules
                .filter(isWritten)
                .map(rule => `-A ${renderRule(rule)}`)
                .sort(),
            ).toEqual(expected.sort());
          }
        });
      },
    );

    test('finds nothing before a table is created, and looking creates none', async () => {
      await withHost(async lab => {
        expect(readIn(lab, socket => [...listNftNat(socket, 4), ...listLegacyNat(4)])).toEqual([]);
        expect((await lab.run(lab.host, ['cat', '/proc/net/ip_tables_names'])).stdout).toBe('');
        expect(await lab.nft(lab.host, 'list', 'ruleset')).toEqual([]);
      });
    });
  },
  requires('iptables-nft-restore', 'iptables-legacy-restore'),
);
