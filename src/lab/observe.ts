// What did each plugin do, judging by the state before and after it ran?

import type { PluginEvent } from '../chain/run/runtime.ts';
import type { PluginEntry } from '../cni/conflist.ts';
import { defined } from '../cni/defined.ts';
import { CniError, toCniError } from '../cni/errors.ts';
import { isObject } from '../cni/json.ts';
import { parseResult, type Result } from '../cni/result.ts';
import type { SpecVersion } from '../cni/version.ts';
import { diffStates, renderDifference } from './diff.ts';
import type { Failure, PluginReport } from './report.ts';
import { diffResults } from './result-diff.ts';
import type { Snapshot } from './snapshot.ts';

/** Observes the plugins of one conflist. */
export interface Observer {
  /** For {@link Runtime.onPlugin}. */
  onPlugin(event: PluginEvent): void;
  /** What was observed since the last call, and how long the snapshots took. */
  take(): { reports: PluginReport[]; lookingMs: number };
}

/** Compares the snapshot after each plugin with the previous one. */
export function observePlugins(
  plugins: readonly PluginEntry[],
  version: SpecVersion,
  look: () => Snapshot,
): Observer {
  let last = look();
  let result: Result | undefined;
  let reports: PluginReport[] = [];
  let lookingMs = 0;
  return {
    onPlugin(event) {
      const started = performance.now();
      const now = look();
      const { verb, durationMs, error } = event;
      const before = result;
      if (event.result) result = parseResult(event.result, version);
      const name = nameOf(event.plugin, plugins[event.index]);
      reports.push({
        link: verb === 'DEL' && reports.some(one => one.failure) ? `${name}, undone` : name,
        durationMs,
        result: event.result && result ? diffResults(before, result) : [],
        host: renderDifference(diffStates(last.host, now.host)),
        container: renderDifference(diffStates(last.container, now.container)),
        files: renderDifference(diffStates(last.files, now.files)),
        ...(error ? { failure: toFailure(error) } : {}),
      });
      last = now;
      lookingMs += performance.now() - started;
    },
    take() {
      const seen = { reports, lookingMs };
      reports = [];
      lookingMs = 0;
      last = look();
      return seen;
    },
  };
}

/** An error with all its details, human-readable. */
export function toFailure(thrown: unknown): Failure {
  const { message, code, details, plugin } = toCniError(thrown);
  const stderr = plugin?.stderr?.trim();
  return {
    message,
    ...(thrown instanceof CniError ? { code } : {}),
    ...defined({ details }),
    ...(stderr ? { stderr } : {}),
  };
}

/** A plugin calls the plugin in its `ipam` itself, so that one has no report of its own. */
function nameOf(type: string, entry: PluginEntry | undefined): string {
  const ipam = entry?.conf.ipam;
  return isObject(ipam) && typeof ipam.type === 'string' && ipam.type ? `${type} + ${ipam.type}` : type;
}
