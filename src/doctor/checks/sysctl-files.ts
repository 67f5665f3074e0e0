// Would `sysctl --system` undo what the plugins set on the node?
//
// Package upgrades and configuration tools run it, and it writes what is in these files, long after an ADD enabled forwarding.
import { type Check, fine, type NodeView } from '../finding.ts';

/** sysctl.d(5): a file hides those of its name in later directories; all files apply in the order of their names. */
const DIRS = [
  '/etc/sysctl.d',
  '/run/sysctl.d',
  '/usr/local/lib/sysctl.d',
  '/usr/lib/sysctl.d',
  '/lib/sysctl.d',
];
/** Applies after all others. */
const LAST = '/etc/sysctl.conf';

/** What plugins with a gateway enable, and what is lost without it. */
const NEEDED: readonly (readonly [key: string, loss: string])[] = [
  ['net.ipv4.ip_forward', 'forwards no IPv4 of containers'],
  ['net.ipv4.conf.all.forwarding', 'forwards no IPv4 of containers'],
  ['net.ipv6.conf.all.forwarding', 'forwards no IPv6 of containers'],
];

/** A file that turns forwarding off takes the containers' network away at some later time. */
export const sysctlFiles: Check = {
  id: 'kernel.sysctl-files',
  run(node) {
    const values = new Map<string, { readonly file: string; readonly value: string }>();
    for (const file of filesOf(node)) {
      for (const { key, value } of settingsIn(node.read(file) ?? '')) values.set(key, { file, value });
    }
    const findings = NEEDED.flatMap(([key, loss]) => {
      const setting = values.get(key);
      if (setting?.value !== '0') return [];
      return {
        id: this.id,
        severity: 'warning' as const,
        found: `"${setting.file}" sets "${key}" to 0: after "sysctl --system", which package upgrades run, the node ${loss}`,
        mend: `remove the line, or set ${key} = 1 there`,
      };
    });
    return findings.length ? findings : fine(this.id, 'no file of "sysctl --system" turns forwarding off');
  },
};

function filesOf({ list }: NodeView): string[] {
  const byName = new Map<string, string>();
  for (const dir of DIRS) {
    for (const name of list(dir)) {
      if (name.endsWith('.conf') && !byName.has(name)) byName.set(name, `${dir}/${name}`);
    }
  }
  const ordered = [...byName].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, file]) => file);
  return [...ordered, LAST];
}

/** sysctl.d(5): comments begin with `#` or `;`, a leading `-` ignores failures, and slashes may stand for dots. */
function settingsIn(text: string): { key: string; value: string }[] {
  return text.split('\n').flatMap(line => {
    const [, name, value] = /^\s*-?([^#;=\s][^=]*?)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    return name === undefined || value === undefined ? [] : { key: name.replaceAll('/', '.'), value };
  });
}
