// Does dhcp report the router of an IPv6 network although it was not heard when the interface came up?
import { expect, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { add, attachHost, confOf } from '../helpers/dhcp-lab.ts';
import { requiresServer } from '../helpers/dhcp-packages.ts';
import { addServedIpv6, makeServedBridge, SERVED, SERVED6, startDhcpServer } from '../helpers/dhcp-server.ts';
import { type Lab, withHost } from '../helpers/netns.ts';
import { startRadvd } from '../helpers/radvd.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

const DEADLINE_MS = deadline(60_000);
/** The first solicitation of dhcp, which has no address yet, and the kernel's, which has one: bytes of both. */
const FIRST_TWO = 48 + 56;
/** A DISCOVER of dhcp has at least this many bytes. */
const DISCOVER = 300;

/** Filters what the server's host receives and sends. */
async function filter(lab: Lab, rules: readonly string[]): Promise<void> {
  const { bridge } = SERVED;
  const chains = [`chain in { type filter hook input priority 0; iifname ${bridge} jump loss; }`];
  // Advertisements to everyone are for those who wait; only answers pass.
  const out = `chain out { type filter hook output priority 0; ip6 daddr ff02::1 icmpv6 type nd-router-advert drop; }`;
  const text = `table inet lossy { chain loss { ${rules.join('; ')}; }; ${[...chains, out].join('; ')}; }`;
  await lab.run(lab.host, ['nft', text]);
}

/** A host that gives the bridge its carrier, and asks no router itself. */
async function attachSilentHost(lab: Lab): Promise<void> {
  const host = await attachHost(lab, 'other0');
  await lab.sysctl(host, 'net/ipv6/conf/eth0/disable_ipv6', 1);
}

describeRoot(
  'dhcp on an IPv6 network that loses packets',
  () => {
    test.each([true, false])(
      '[1.1.0] a router that hears neither of the first two questions is asked again once a lease was granted (probing for it: %p)',
      async detectConflicts => {
        await withHost(async lab => {
          await makeServedBridge(lab);
          await addServedIpv6(lab);
          await attachSilentHost(lab);
          await filter(lab, [`icmpv6 type nd-router-solicit quota until ${FIRST_TWO} bytes drop`]);
          await startDhcpServer(lab, lab.host, SERVED.bridge, {
            args: ['--dhcp-range=fd77::100,fd77::1ff,64,2m'],
          });
          startRadvd(lab, lab.host, SERVED.bridge);
          const conf = confOf({ ipv6: 'dhcp', ipv4: false, timeout: 10, detectConflicts });
          expect(await add(lab, await lab.container(), conf)).toMatchObject({
            ips: [{ address: expect.stringMatching(/^fd77::1[0-9a-f]{2}\/64$/), gateway: SERVED6.router }],
            routes: [{ dst: '::/0', gw: SERVED6.router }],
          });
        });
      },
      DEADLINE_MS,
    );

    test(
      '[1.1.0] a router that answers the kernel while an IPv4 lease takes its time is reported',
      async () => {
        await withHost(async lab => {
          await makeServedBridge(lab);
          await addServedIpv6(lab);
          await attachSilentHost(lab);
          await filter(lab, [`udp dport 67 quota until ${4 * DISCOVER} bytes drop`]);
          await startDhcpServer(lab, lab.host, SERVED.bridge);
          startRadvd(lab, lab.host, SERVED.bridge, { lines: ['RDNSS fd77::99 { };'] });
          const result = await add(lab, await lab.container(), confOf({ ipv6: 'slaac', timeout: 20 }));
          expect(result).toMatchObject({
            ips: [{ gateway: SERVED.server }, { gateway: SERVED6.router }],
            dns: { nameservers: ['fd77::99'] },
          });
        });
      },
      DEADLINE_MS,
    );
  },
  requires('dnsmasq'),
  requiresServer('radvd'),
);
