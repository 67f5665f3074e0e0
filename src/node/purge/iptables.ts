// Which chains of iptables no longer serve an attachment, and how are they removed?
import type { SharedChain } from '../../cni/plugin-about.ts';
import { isInstalled, restoreTable, type SavedTable, saveTable } from '../../netlink/iptables/program.ts';
import type { PurgeStep } from './files.ts';

const FAMILIES = [
  { family: 4, program: 'iptables-save', name: 'iptables' },
  { family: 6, program: 'ip6tables-save', name: 'ip6tables' },
] as const;

/**
 * Removes chains that plugins share with the reference's, where only their fixed rules are left in them. The tables of iptables stay.
 * @param dryRun only look
 * @throws Error with the message of the iptables program
 */
export function purgeIptables(shared: readonly SharedChain[], dryRun: boolean): PurgeStep[] {
  const tables = [...new Set(shared.map(({ table }) => table))];
  return FAMILIES.filter(({ program }) => isInstalled(program)).flatMap(({ family, name }) =>
    tables.flatMap(table => {
      const names = shared.filter(one => one.table === table).map(one => one.name);
      const saved = saveTable(family, table);
      const there = names.filter(chain => saved.chains.includes(chain));
      const why = findUser(saved, there);
      if (why === undefined && there.length && !dryRun)
        restoreTable(family, table, removalLines(saved, there));
      const action = why === undefined ? ('remove' as const) : ('keep' as const);
      const words = (chain: string) => `chain "${chain}" of ${name} -t ${table}`;
      return there.map(chain => ({ action, what: words(chain), ...(why ? { why } : {}) }));
    }),
  );
}

/** A rule of an attachment, or of the operator; one keeps all of the chains, as they lead to each other. */
export function findUser({ rules }: SavedTable, chains: readonly string[]): string | undefined {
  const comment = /( -m comment --comment ("[^"]*"|\S+))?/.source;
  const target = `-j (${[...chains, 'RETURN', 'MARK .*', 'MASQUERADE'].join('|')})`;
  const fixed = new RegExp(`^\\S+${comment}( -m mark --mark \\S+)?${comment} ${target}$`);
  const used = rules.find(rule => chains.includes(rule.split(' ')[0] ?? '') && !fixed.test(rule));
  return used === undefined ? undefined : `it has or serves the rule "${used}"`;
}

/** Jumps first: a chain that is jumped to cannot be deleted. */
export function removalLines({ rules }: SavedTable, chains: readonly string[]): string[] {
  const jumps = rules.filter(rule => {
    const [chain = ''] = rule.split(' ');
    return !chains.includes(chain) && chains.some(name => ` ${rule} `.includes(` -j ${name} `));
  });
  return [
    ...jumps.map(rule => `-D ${rule}`),
    ...chains.map(name => `-F ${name}`),
    ...chains.map(name => `-X ${name}`),
  ];
}
