// Do the services that start plugins let them make code, as every call of the C library needs?
import { type Check, type Finding, fine, type NodeView } from '../finding.ts';

/** systemd.unit(5): the first unit file of a name is used, and of drop-ins with one name the first. */
const DIRS = [
  '/etc/systemd/system',
  '/run/systemd/system',
  '/usr/local/lib/systemd/system',
  '/usr/lib/systemd/system',
  '/lib/systemd/system',
];
/** Whatever runs plugins, by the names that distributions use. */
const UNITS = ['containerd', 'crio', 'cri-o', 'docker', 'podman', 'k3s', 'k3s-agent', 'kubelet', 'catena'];
const SETTING = /^\s*MemoryDenyWriteExecute\s*=\s*(\S*)\s*$/gm;
const YES = ['1', 'yes', 'true', 'on', 'y', 't'];

/** Such a service is inherited by the plugins that it starts: each ADD and DEL fails. */
export const executableMemory: Check = {
  id: 'kernel.executable-memory',
  run(node) {
    const findings = UNITS.flatMap((unit): Finding[] => {
      const last = filesOf(node, unit)
        .flatMap(file =>
          [...(node.read(file) ?? '').matchAll(SETTING)].map(([, value = '']) => ({ file, value })),
        )
        .at(-1);
      if (last === undefined || !YES.includes(last.value.toLowerCase())) return [];
      const found = `"${last.file}" sets MemoryDenyWriteExecute: plugins that ${unit} starts cannot call the C library, so each ADD and DEL fails`;
      const mend = `systemctl edit ${unit}  # [Service] MemoryDenyWriteExecute=no, then restart it`;
      return [{ id: this.id, severity: 'error', found, mend }];
    });
    return findings.length
      ? findings
      : fine(this.id, 'no service of a runtime refuses executable memory to plugins');
  },
};

/** In the order in which they apply. */
function filesOf(node: NodeView, unit: string): string[] {
  const file = DIRS.find(dir => node.list(dir).includes(`${unit}.service`));
  const dropIns = new Map<string, string>();
  for (const dir of DIRS.map(one => `${one}/${unit}.service.d`)) {
    for (const name of node.list(dir))
      if (name.endsWith('.conf') && !dropIns.has(name)) dropIns.set(name, `${dir}/${name}`);
  }
  const ordered = [...dropIns].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, path]) => path);
  return [...(file === undefined ? [] : [`${file}/${unit}.service`]), ...ordered];
}
