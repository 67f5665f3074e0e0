// Which packet filter does iptables change on this host?
import { realpathSync } from 'node:fs';
import { basename } from 'node:path';
import type { Family } from './nat-rule.ts';
import { runProgram } from './program.ts';
import { getRestore } from './restore.ts';

/**
 * The packet filter behind `iptables-restore`: its file says so, and a script that chooses is asked.
 * @throws Error when it is not installed
 * Same as: `iptables-restore --version`
 */
export function restoreMode(family: Family): 'nft' | 'legacy' {
  const program = getRestore(family);
  const file = basename(realpathSync(program));
  if (/nft|legacy/.test(file)) return file.includes('nft') ? 'nft' : 'legacy';
  const version = runProgram(`ask "${program}" for its version`, [program, '--version']);
  return version.includes('nf_tables') ? 'nft' : 'legacy';
}
