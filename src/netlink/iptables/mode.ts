// Which packet filter do the iptables programs change on this host?

import { realpathSync } from 'node:fs';
import { basename } from 'node:path';
import type { Family } from '../../net/ip.ts';
import { isInstalled, runProgram } from './program.ts';
import { getRestore } from './restore.ts';

/**
 * The packet filter behind `iptables-restore`, according to the name of its file; a wrapper script is asked for its version.
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

/** True when the iptables programs change that packet filter; false when there are none. */
export function doProgramsChange(family: Family, mode: 'nft' | 'legacy'): boolean {
  try {
    return restoreMode(family) === mode;
  } catch {
    return false;
  }
}

/**
 * True when the legacy packet filter has tools of its own here, and `iptables` uses nf_tables.
 * Same as: `command -v iptables-legacy-restore`, where `iptables` uses nf_tables
 */
export function hasLegacyTools(family: Family): boolean {
  const tools = `ip${family === 4 ? '' : '6'}tables-legacy`;
  return ['restore', 'save'].every(tool => isInstalled(`${tools}-${tool}`)) && restoreMode(family) === 'nft';
}
