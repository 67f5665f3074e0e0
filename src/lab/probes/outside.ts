// Does the container reach the world outside its host, and with which source address?
import { findCidr } from '../../net/cidr.ts';
import { renderIp, sameIp } from '../../net/ip.ts';
import { talkTcp } from '../traffic.ts';
import { containerIps, type Finding, finding, type Probe, type Scene } from './probe.ts';

const PORT = 7;

/**
 * Promised by: a default route in the result, through a gateway that is this host. With `ipMasq`, the outside must see the
 * host's address, otherwise the container's own.
 */
export function outsideProbes(scene: Scene): Probe[] {
  const { plugins, container, lab } = scene;
  const masquerades = plugins.some(({ conf }) => conf.ipMasq === true);
  return lab.families
    .filter(family => hasDefaultRoute(scene, family))
    .map(family => ({
      what: `IPv${family} outside is reachable${masquerades ? ", and sees the host's address" : ''}`,
      run: () => reach(scene, family, masquerades ? lab.hostAddress[family] : undefined),
    }))
    .filter(() => containerIps(container).length > 0);
}

function reach(
  { lab, container }: Scene,
  family: 4 | 6,
  expected: Scene['lab']['hostAddress'][4] | undefined,
): Finding {
  const said = talkTcp({
    server: lab.outside.netns,
    port: PORT,
    client: container.place.netns,
    to: lab.outsideAddress[family],
    toPort: PORT,
  });
  if (!said.answered) return finding(false, said.why);
  const seen = `it saw ${renderIp(said.peer)}`;
  return finding(expected === undefined || sameIp(said.peer, expected), seen);
}

function hasDefaultRoute({ container }: Scene, family: 4 | 6): boolean {
  return (container.result.routes ?? []).some(({ dst }) => {
    const cidr = findCidr(dst);
    return cidr !== undefined && cidr.prefix === 0 && cidr.ip.family === family;
  });
}
