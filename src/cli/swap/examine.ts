// Does a candidate keep the rules of the protocol, and do what the executable does that it is to replace?
import type { Conflist } from '../../chain/conflist.ts';
import { renderReport } from '../../compare/render.ts';
import type { CompareReport } from '../../compare/report.ts';
import { renderVerdict, type Verdict } from '../../conformance/render.ts';
import type { Rule } from '../../conformance/rule.ts';
import { runOwnCommand } from '../../lab/own-command.ts';
import type { CommandCall } from '../command.ts';

/** What is examined, in whose place. */
export interface Examined {
  /** A copy of the candidate, in a directory of its own, under the name of the link. */
  readonly copy: string;
  readonly type: string;
  readonly list: Conflist;
  /** The file of the list. */
  readonly file: string;
  readonly pluginDirs: readonly string[];
}

/** The report of `catena conformance --json`. */
export interface ConformanceJson {
  readonly ok: boolean;
  readonly calls: number;
  readonly rules: readonly (Pick<Rule, 'id' | 'title' | 'level' | 'source'> & {
    readonly outcome: Verdict['findings'][number]['outcome'];
    readonly details?: string;
  })[];
}

/** Has `catena conformance` examine the candidate, with the configuration of the list where the link is an entry of it. */
export async function examineRules(examined: Examined, call: CommandCall): Promise<ConformanceJson> {
  const { copy, type, list, file } = examined;
  const isEntry = list.plugins.some(entry => entry.type === type);
  const given = isEntry ? ['--from', file, ...capOf(call)] : [];
  return await ask('conformance', [copy, ...given, ...dirsOf(examined)], call);
}

/** Has `catena compare` run the list with both. */
export async function compareBoth(examined: Examined, call: CommandCall): Promise<CompareReport> {
  const { copy, type, file } = examined;
  const chosen = ['ignore', 'scene'].flatMap(option =>
    call.texts(option).flatMap(one => [`--${option}`, one]),
  );
  const args = ['--with', copy, '--link', type, file, ...dirsOf(examined), ...chosen, ...capOf(call)];
  return await ask('compare', args, call);
}

/** Rules that are broken, and the verdict. */
export function renderRules({ rules, calls, ok }: ConformanceJson): string {
  const broken = rules.filter(({ outcome }) => outcome === 'broken');
  const lines = broken.map(({ level, id, title, details }) => {
    return `  ${level.padEnd(6)}  ${id}: ${title}${details === undefined ? '' : `; seen: ${details}`}\n`;
  });
  const findings = rules.map(({ level, outcome }) => ({ rule: { level }, outcome }));
  return `${renderVerdict({ findings, calls, ok })}${lines.join('')}`;
}

/** In what both differ. */
export function renderComparison(report: CompareReport, { pluginDirs, type }: Examined): string {
  return renderReport(report, pluginDirs.join(':'), `the candidate for ${type}`);
}

function dirsOf({ pluginDirs }: Examined): string[] {
  return pluginDirs.flatMap(dir => ['--bin-dir', dir]);
}

function capOf(call: CommandCall): string[] {
  const cap = call.text('cap');
  return cap === undefined ? [] : ['--cap', cap];
}

async function ask<Reply>(command: string, args: readonly string[], call: CommandCall): Promise<Reply> {
  const { stdout, stderr, exitCode } = await runOwnCommand([command, '--json', ...args], call);
  // Exit code 1 is a verdict as well.
  if (stdout.startsWith('{')) return JSON.parse(stdout) as Reply;
  throw new Error(`Cannot examine with "catena ${command}": ${stderr.trim() || `exit code ${exitCode}`}`);
}
