// What is wrong with a conflist, or with the conflists of a directory?
import { statSync } from 'node:fs';
import { findConfFiles, type OnSkipped } from '../chain/config/conf-files.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { PluginCatalog } from '../cni/plugin-about.ts';
import { judgeCapabilities } from './capabilities.ts';
import { judgeDirectory } from './directory.ts';
import { atValue } from './document.ts';
import type { Executables } from './executables.ts';
import type { Finding, Report } from './finding.ts';
import { type PlacedNetwork, type PlacedPlugin, type ReadNetwork, readNetwork } from './network.ts';
import { judgePlugin } from './plugin.ts';

/**
 * Checks one file, or every file of a directory that a runtime would read, and whether they are compatible.
 * @throws CniError 5 if the path does not exist
 */
export async function validatePath(
  path: string,
  catalog: PluginCatalog,
  executables: Executables,
): Promise<Report> {
  const findings: Finding[] = [];
  const files = filesAt(path, (file, problem) => {
    const message = `skipping the entry: ${problem}`;
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
  const inside = network.plugins.flatMap(plugin => [
    ...judgePlugin(plugin, executables.isForeign),
    ...judgeCapabilities(plugin),
  ]);
  const all = [...findings, ...inside, ...judgeOrder(network), ...judgeMissingVersion(network)];
  // The runtime's own error is reported only if no finding explains it.
  const explained = all.some(({ severity, rule }) => severity === 'error' && rule === 'shape');
  const shown = refusal && (!explained || refusal.rule === 'version');
  return [...all, ...(shown ? [refusal] : []), ...(await executables.judge(network))];
}

function judgeMissingVersion({ document }: PlacedNetwork): Finding[] {
  const { cniVersion, cniVersions } = document.value;
  if ((cniVersion !== undefined && cniVersion !== '') || cniVersions !== undefined) return [];
  const message = '"cniVersion" is missing: assuming 0.1.0, which has neither CHECK nor GC';
  return [atValue(document, ['cniVersion'], ['warning', 'version', message])];
}

/** By file in reading order, plugin files after their conflist, then by position. */
function inOrder(findings: readonly Finding[], files: readonly string[]): Finding[] {
  const rank = ({ file }: Finding) => (files.indexOf(file) + files.length + 1) % (files.length + 1);
  return [...findings].sort((a, b) => {
    const byFile = rank(a) - rank(b) || (a.file < b.file ? -1 : a.file > b.file ? 1 : 0);
    return byFile || a.line - b.line || a.column - b.column;
  });
}

/** Finds plugins in the wrong position; the right position of a third-party plugin is unknown. */
function judgeOrder({ plugins }: PlacedNetwork): Finding[] {
  return plugins.flatMap((placed, index) => {
    const finding = judgePlace(placed, index, plugins);
    return finding === undefined ? [] : [finding];
  });
}

function judgePlace(
  placed: PlacedPlugin,
  index: number,
  plugins: readonly PlacedPlugin[],
): Finding | undefined {
  const { document, path, plugin, conf } = placed;
  if (plugin?.about === undefined) return undefined;
  const { type, about } = plugin;
  if (about.follows?.(conf)) return undefined;
  const say = (severity: 'error' | 'warning', message: string) =>
    atValue(document, [...path, 'type'], [severity, 'order', message]);
  if (about.kind === 'ipam') {
    return say(
      'warning',
      `"${type}" assigns addresses: it belongs in "ipam" of the plugin that creates the interface`,
    );
  }
  if (about.kind === 'meta' && index === 0) {
    const main = plugins.find(other => other.plugin?.about?.kind === 'main');
    const where = main === undefined ? 'a plugin that creates the interface' : `"${main.plugin?.type}"`;
    return say(
      'error',
      `"${type}" needs the result of an earlier plugin, but there is none: put it after ${where}`,
    );
  }
  // After meta plugins only, it is those that are in the wrong position.
  if (about.kind === 'main' && plugins.slice(0, index).some(other => other.plugin?.about?.kind !== 'meta')) {
    const earlier = plugins[index - 1]?.plugin?.type ?? 'another plugin';
    return say('warning', `"${type}" creates its own interface: it should be first, not after "${earlier}"`);
  }
  return undefined;
}
