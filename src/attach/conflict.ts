// Does another host of the link have an IPv4 address already?
//
// Where an interface shares its link with hosts that this node does not manage, IPAM cannot know their addresses. RFC 5227 asks before an
// address is used: a probe claims nothing, so no host changes its cache, and the holder of the address answers. Its waits of up to nine
// seconds are for links of 1998; hosts of today answer within milliseconds, and a container waits for this.
import { CniError, ErrorCode } from '../cni/errors.ts';
import { type ArpMessage, decodeArp, ETH_P_ARP, encodeArpProbe } from '../net/arp.ts';
import { type Ip, renderIp, sameIp } from '../net/ip.ts';
import { type Link, setLink } from '../netlink/rtnl/link.ts';
import type { Call } from '../plugin/define.ts';
import { inNetns } from '../sys/netns.ts';
import {
  BROADCAST,
  closePacketSocket,
  openPacketSocket,
  receivePacket,
  sendPacket,
} from '../sys/packet-socket.ts';
import { awaitTraffic, type Stage } from './ready.ts';

const PROBES = 3;
const INTERVAL_MS = 150;
const POLL_MS = 5;
/** Frames read at a time: a link full of ARP must not keep an ADD from ending. */
const MOST_FRAMES = 1_000;
const FRAME_BYTES = 2048;

/**
 * Brings the container's interface up, and probes for the IPv4 addresses once packets flow. An interface without addresses announces
 * nothing, so no host learns of it.
 * @param stages the interfaces that must work for packets to pass, that one included
 * @throws CniError 11 as {@link refuseTakenAddresses}
 */
export async function probeAddresses(
  call: Pick<Call, 'container' | 'containerNetns' | 'log'>,
  link: Link,
  stages: readonly Stage[],
  ips: readonly Ip[],
): Promise<void> {
  setLink(call.container, link.index, { up: true });
  await awaitTraffic(call.log, stages);
  await refuseTakenAddresses(call, link, ips);
}

/**
 * Probes for the IPv4 addresses on the container's interface, which must be up, and must not have them yet. Takes 450 ms.
 * @throws CniError 11 naming the address and the hardware address of its holder: the next attempt gets another address
 */
export async function refuseTakenAddresses(
  call: Pick<Call, 'containerNetns'>,
  link: Link,
  ips: readonly Ip[],
): Promise<void> {
  const wanted = ips.filter(({ family }) => family === 4);
  const { mac } = link;
  if (wanted.length === 0 || mac === undefined) return;
  const socket = inNetns(call.containerNetns, () => openPacketSocket(link.index, ETH_P_ARP));
  const room = new Uint8Array(FRAME_BYTES);
  const receive = () => receivePacket(socket, room)?.bytes;
  try {
    for (let probe = 0; probe < PROBES; probe++) {
      for (const ip of wanted) sendPacket(socket, encodeArpProbe(mac, ip), BROADCAST);
      for (const until = performance.now() + INTERVAL_MS; performance.now() < until; ) {
        refuseHolder(receive, wanted, link.name, mac);
        await Bun.sleep(POLL_MS);
      }
    }
    refuseHolder(receive, wanted, link.name, mac);
  } finally {
    closePacketSocket(socket);
  }
}

/**
 * Reads what has arrived.
 * @param receive the next frame, if there is one
 * @throws CniError 11 when another host answers for one of the addresses
 */
export function refuseHolder(
  receive: () => Uint8Array | undefined,
  wanted: readonly Ip[],
  name: string,
  own: string,
): void {
  for (let left = MOST_FRAMES; left > 0; left--) {
    const frame = receive();
    if (frame === undefined) return;
    const message = decodeArp(frame);
    const ip = message && findTaken(message, wanted, own);
    if (message === undefined || ip === undefined) continue;
    throw new CniError(
      ErrorCode.tryAgainLater,
      `Cannot use ${renderIp(ip)} on "${name}": the host with hardware address ${message.senderMac} has it`,
      { details: 'exclude the address from "ipam", or remove it from that host' },
    );
  }
}

/** The holder answers or announces; a host that probes for the address at this moment will use it (RFC 5227, 2.1.1). */
export function findTaken(
  { senderMac, sender, target }: ArpMessage,
  wanted: readonly Ip[],
  own: string,
): Ip | undefined {
  if (senderMac === own) return undefined;
  return wanted.find(ip => sameIp(ip, sender) || (sender.value === 0n && sameIp(ip, target)));
}
