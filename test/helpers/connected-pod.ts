// What does a chained plugin receive: a container on a veth, and the result that describes it?

import type { Dump } from './dump.ts';
import { type Container, type Lab, type Row, untilLocal, untilUp } from './netns.ts';

/** A container on a veth of its own. */
export interface Pod {
  readonly container: Container;
  readonly ifname: string;
  /** Name of the host end. */
  readonly veth: string;
  readonly v4: string;
  readonly v6: string;
  readonly prevResult: { cniVersion: string; interfaces: Row[]; ips: Row[] };
}

/** Connects a container as a main plugin would, but with `ip`, so that only the plugin after it is tested. */
export async function connect(lab: Lab, n = 1, existing?: Container, ifname = 'eth0'): Promise<Pod> {
  const { host } = lab;
  const container = existing ?? (await lab.container());
  const veth = `veth${n}`;
  await lab.batch(host, `link add ${veth} type veth peer name ${ifname} netns ${container.name}`);
  for (const [ns, dev, last] of [
    [host, veth, 1],
    [container, ifname, 2],
  ] as const) {
    await lab.batch(
      ns,
      `addr add 10.77.${n}.${last}/24 dev ${dev}`,
      `addr add fd77:${n}::${last}/64 dev ${dev} nodad`,
      // No link-local address: it settles later, which would show up as a difference between two dumps.
      `link set ${dev} addrgenmode none`,
      `link set ${dev} up`,
    );
  }
  await untilUp(host, veth);
  await untilUp(container, ifname);
  // Its settling would show up as a difference between two dumps.
  await untilLocal(host, `fd77:${n}::1`);
  await untilLocal(container, `fd77:${n}::2`);
  const prevResult = {
    cniVersion: '1.0.0',
    interfaces: [{ name: veth }, { name: ifname, sandbox: container.path }],
    ips: [{ address: `10.77.${n}.2/24`, interface: 1 }],
  };
  return { container, ifname, veth, v4: `10.77.${n}.2`, v6: `fd77:${n}::2`, prevResult };
}

/** What limits traffic on the host. Addresses are left out, since the kernel's own ones on IFB devices settle later. */
export async function shapingOf(lab: Lab): Promise<Pick<Dump, 'links' | 'qdiscs' | 'filters'>> {
  const { links, qdiscs, filters } = await lab.dump(lab.host);
  return { links, qdiscs, filters };
}
