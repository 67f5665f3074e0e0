// Which attributes does a veth pair have?
import { attrs } from '../../codec/attrs.ts';
import { type Field, mac, str, u32 } from '../../codec/fields.ts';
import { ifinfomsg } from '../link-header.ts';

/** Attributes for creating the other end. */
const peerAttrs = attrs('veth peer', {
  address: [1, mac], // IFLA_ADDRESS
  ifname: [3, str], // IFLA_IFNAME
  mtu: [4, u32], // IFLA_MTU
  txqlen: [13, u32], // IFLA_TXQLEN
  netnsFd: [28, u32], // IFLA_NET_NS_FD
});

type PeerAttrs = ReturnType<typeof peerAttrs.decode>;

/** linux/veth.h, VETH_INFO_PEER: a struct ifinfomsg and then link attributes. */
const peer: Field<PeerAttrs> = {
  nested: true,
  encode(writer, value) {
    ifinfomsg.encode(writer, {});
    peerAttrs.encode(writer, value, value);
  },
  decode: bytes => peerAttrs.decode(bytes.subarray(ifinfomsg.size), {}),
};

/** `IFLA_INFO_DATA` of kind `veth`. */
export const veth = attrs('veth', {
  peer: [1, peer], // VETH_INFO_PEER
});
