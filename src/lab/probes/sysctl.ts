// Are kernel parameters set inside the container, and only there?
import type { JsonObject } from '../../cni/json.ts';
import { inNetns } from '../../sys/netns.ts';
import { findSysctl } from '../../sys/sysctl.ts';
import { type Finding, finding, type Probe, type Scene } from './probe.ts';

/** Promised by: the `sysctl` key. */
export function sysctlProbes(scene: Scene): Probe[] {
  return scene.plugins.flatMap(({ conf }) =>
    [...sysctlsOf(conf, scene.ifname)].map(([path, value]) => ({
      what: `${path} is ${value} inside, unchanged outside`,
      run: () => look(scene, path, value),
    })),
  );
}

/** Parameters that a plugin's configuration sets, by path below /proc/sys. */
export function sysctlsOf(conf: JsonObject, ifname: string): Map<string, string> {
  const { sysctl } = conf;
  if (sysctl === null || typeof sysctl !== 'object') return new Map();
  return new Map(
    Object.entries(sysctl).map(([name, value]) => [pathOf(name.replaceAll('IFNAME', ifname)), String(value)]),
  );
}

/** If the first separator is a slash, dots belong to interface names (sysctl.d(5)). */
function pathOf(name: string): string {
  const firstSeparator = /[./]/.exec(name)?.[0];
  if (firstSeparator === '/') return name;
  return name.replace(/[./]/g, found => (found === '.' ? '/' : '.'));
}

function look({ container, lab, sysctlsBefore }: Scene, path: string, wanted: string): Finding {
  const inside = inNetns(container.place.netns, () => findSysctl(path));
  const outside = inNetns(lab.host.netns, () => findSysctl(path));
  if (inside === undefined) return finding(false, 'the container has no such parameter');
  const same = words(inside) === words(wanted);
  if (!same) return finding(false, `inside it is ${inside}`);
  const before = sysctlsBefore.get(path);
  if (outside !== before) return finding(false, `outside it changed from ${before} to ${outside}`);
  return finding(true, `outside it is ${outside ?? 'absent'}`);
}

/** The kernel separates values with tabs where people use spaces. */
function words(value: string): string {
  return value.trim().split(/\s+/).join(' ');
}
