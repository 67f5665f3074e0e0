// Are the kernel and the programs that configure it set up so that containers are reachable?
import { basename, dirname } from 'node:path';
import { type Check, type Finding, fine, type NodeView } from '../finding.ts';

/** With br_netfilter, packets between two ports of a bridge pass iptables as well. */
export const bridgeNetfilter: Check = {
  id: 'kernel.bridge-nf',
  run(node) {
    const calls = ['iptables', 'ip6tables'].map(table =>
      read(node, `/proc/sys/net/bridge/bridge-nf-call-${table}`),
    );
    if (calls.every(call => call === undefined)) return fine(this.id, 'bridged packets do not pass iptables');
    const [v4, v6] = calls;
    if (v4 === v6)
      return fine(
        this.id,
        `bridged packets ${v4 === '1' ? 'pass' : 'do not pass'} iptables, in both families`,
      );
    const found = `bridge-nf-call-iptables is ${v4}, bridge-nf-call-ip6tables is ${v6}: the families are filtered differently`;
    return [
      { id: this.id, severity: 'warning', found, mend: 'sysctl -w net.bridge.bridge-nf-call-ip6tables=1' },
    ];
  },
};

/** Names of the tables of the iptables before nf_tables. */
const LEGACY = ['/proc/net/ip_tables_names', '/proc/net/ip6_tables_names'];

function isListed({ list }: NodeView, path: string): boolean {
  return list(dirname(path)).includes(basename(path));
}

/** Two packet filters at once: each may drop packets that the other accepts. */
export const packetFilters: Check = {
  id: 'kernel.packet-filters',
  run(node) {
    const hidden = LEGACY.find(path => node.read(path) === undefined && isListed(node, path));
    if (hidden !== undefined)
      return [
        {
          id: this.id,
          severity: 'unexamined',
          found: `the legacy iptables: this user may not read "${hidden}"`,
        },
      ];
    const tables = LEGACY.flatMap(path => (node.read(path) ?? '').split('\n').filter(Boolean));
    if (tables.length === 0) return fine(this.id, 'only nf_tables filters packets');
    const found = `the legacy iptables has tables (${[...new Set(tables)].join(', ')}) in addition to nf_tables: a packet must pass both`;
    const mend = 'see iptables-legacy-save; flush the rules that are not needed, or use only one of the two';
    return [{ id: this.id, severity: 'warning', found, mend }];
  },
};

/** A firewall manager reloads its rules and discards rules that it does not know. */
export const firewallManagers: Check = {
  id: 'kernel.firewall-managers',
  run(node) {
    const findings: Finding[] = [];
    if (node.list('/run/firewalld').length || node.read('/run/firewalld.pid') !== undefined) {
      const found =
        'firewalld runs: a reload removes rules that it does not manage, and its zones drop forwarded packets';
      findings.push({
        id: this.id,
        severity: 'info',
        found,
        mend: 'the firewall plugin registers containers with it; after a reload run catena repair',
      });
    }
    if (/^ENABLED=yes/m.test(node.read('/etc/ufw/ufw.conf') ?? '')) {
      const found = 'ufw is enabled and drops forwarded packets by default';
      findings.push({
        id: this.id,
        severity: 'warning',
        found,
        mend: 'set DEFAULT_FORWARD_POLICY="ACCEPT" in /etc/default/ufw, or use the firewall plugin',
      });
    }
    return findings.length ? findings : fine(this.id, 'no other software manages the packet filter');
  },
};

/** systemd changes the MAC address of a new device after the plugin has reported the original one to the runtime. */
export const macPolicy: Check = {
  id: 'udev.mac-policy',
  run(node) {
    const dirs = [
      '/etc/systemd/network',
      '/run/systemd/network',
      '/usr/lib/systemd/network',
      '/lib/systemd/network',
    ];
    for (const dir of dirs) {
      const text = node.read(`${dir}/99-default.link`);
      if (text === undefined) continue;
      if (!/^MACAddressPolicy=persistent/m.test(text)) break;
      const found = `"${dir}/99-default.link" changes the hardware addresses of bridges and veths after their creation`;
      const mend =
        'add a file that sorts before it, with [Match] Driver=veth bridge and [Link] MACAddressPolicy=none';
      return [{ id: this.id, severity: 'warning', found, mend }];
    }
    return fine(this.id, 'hardware addresses stay as plugins set them');
  },
};

function read(node: NodeView, path: string): string | undefined {
  return node.read(path)?.trim();
}
