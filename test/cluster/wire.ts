// Which network connects the machines of a cluster with each other and with a client outside?

import { runOk } from '../helpers/command.ts';
import { createLab, type Lab, type Namespace, untilUp } from '../helpers/netns.ts';
import { BEYOND, gatewayOf, MACHINES } from './addresses.ts';

/** A switch, in a namespace of its own, whose host is also the client outside. */
export interface Wire {
  readonly lab: Lab;
  /** Gives a machine the device `eth0` with an address, on the network that it belongs to. */
  plug(machine: Namespace, name: string, address: string): Promise<void>;
}

/** The machine's end. */
export const UPLINK = 'eth0';

/** Makes the switch; its lab is to be closed last. */
export async function makeWire(): Promise<Wire> {
  const lab = await createLab();
  const ip = (ns: Namespace, ...args: string[]) => runOk(['ip', '-n', ns.name, ...args]);
  const networks = { switch: MACHINES, beyond: BEYOND };
  for (const [i, [name, { outside, prefix }]] of Object.entries(networks).entries()) {
    // With an address of its own: else it takes that of a new port, and what machines send to the former one is lost for seconds.
    await ip(lab.host, 'link', 'add', name, 'address', `02:00:5e:00:00:0${i + 1}`, 'type', 'bridge');
    await ip(lab.host, 'addr', 'add', `${outside}/${prefix}`, 'dev', name);
    await ip(lab.host, 'link', 'set', name, 'up');
  }
  await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
  return {
    lab,
    async plug(machine, name, address) {
      const peer = ['peer', 'name', UPLINK, 'netns', machine.name];
      await ip(lab.host, 'link', 'add', name, 'type', 'veth', ...peer);
      const bridge = gatewayOf(address) === BEYOND.outside ? 'beyond' : 'switch';
      await ip(lab.host, 'link', 'set', name, 'master', bridge, 'up');
      await ip(machine, 'addr', 'add', `${address}/${MACHINES.prefix}`, 'dev', UPLINK);
      await ip(machine, 'link', 'set', UPLINK, 'up');
      await ip(machine, 'route', 'add', 'default', 'via', gatewayOf(address));
      await untilUp(machine, UPLINK);
    },
  };
}
