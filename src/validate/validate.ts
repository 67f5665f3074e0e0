// What is wrong with a list, or with the lists of a directory?
import { statSync } from 'node:fs';
import { findConfFiles, type OnSkipped } from '../chain/conf-files.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { LinkCatalog } from '../cni/link-about.ts';
import { judgeCapabilities } from './capabilities.ts';
import { judgeDirectory } from './directory.ts';
import { atValue } from './document.ts';
import type { Executables } from './executables.ts';
import type { Finding, Report } from './finding.ts';
import { judgeLink } from './link.ts';
import { type PlacedNetwork, type ReadNetwork, readNetwork } from './network.ts';
import { judgeOrder } from './order.ts';

/**
 * Looks at one file, or at every file of a directory that a runtime would read, and at how they get along.
 * @throws CniError 5 when there is nothing at the path
 */
export async function validatePath(
  path: string,
  catalog: LinkCatalog,
  executables: Executables,
): Promise<Report> {
  const findings: Finding[] = [];
  const files = filesAt(path, (file, problem) => {
    const message = `the entry is passed by: ${problem}`;
    findings.push({ file, line: 1, column: 1, severity: 'warning', rule: 'unreadable', message });
  });
  const networks: PlacedNetwork[] = [];
  for (const file of files) {
    const read = await readNetwork(file, catalog);
    findings.push(...(await judgeFile(read, executables)));
    if (read.network) networks.push(read.network);
  }
  findings.push(...judgeDirectory(networks));
  return { files: files.length, findings: inOrder(findings, files) };
}

function filesAt(path: string, onSkipped: OnSkipped): string[] {
  try {
    return statSync(path).isDirectory() ? findConfFiles(path, onSkipped) : [path];
  } catch (cause) {
    throw new CniError(ErrorCode.ioFailure, `Cannot read "${path}": ${(cause as Error).message}`, { cause });
  }
}

async function judgeFile(
  { network, findings, refusal }: ReadNetwork,
  executables: Executables,
): Promise<Finding[]> {
  if (network === undefined) return findings;
  const inside = network.links.flatMap(link => [
    ...judgeLink(link, executables.isForeign),
    ...judgeCapabilities(link),
  ]);
  const all = [...findings, ...inside, ...judgeOrder(network), ...judgeMissingVersion(network)];
  // The runtime's own word counts when nobody found what it stumbled over.
  const explained = all.some(({ severity, rule }) => severity === 'error' && rule === 'shape');
  return [...all, ...(refusal && !explained ? [refusal] : []), ...(await executables.judge(network))];
}

function judgeMissingVersion({ document }: PlacedNetwork): Finding[] {
  const { cniVersion, cniVersions } = document.value;
  if ((cniVersion !== undefined && cniVersion !== '') || cniVersions !== undefined) return [];
  const message = '"cniVersion" is missing: 0.1.0 is assumed, which has neither CHECK nor GC';
  return [atValue(document, ['cniVersion'], ['warning', 'version', message])];
}

/** By file in the order of reading, files beside a list after it, then by place. */
function inOrder(findings: readonly Finding[], files: readonly string[]): Finding[] {
  const rank = ({ file }: Finding) => (files.indexOf(file) + files.length + 1) % (files.length + 1);
  return [...findings].sort((a, b) => {
    const byFile = rank(a) - rank(b) || (a.file < b.file ? -1 : a.file > b.file ? 1 : 0);
    return byFile || a.line - b.line || a.column - b.column;
  });
}
