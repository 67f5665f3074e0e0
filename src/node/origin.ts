// Which program made an attachment, and when?

import { statSync } from 'node:fs';
import { findGeneration } from '../attachments/generation.ts';
import { findCacheFile } from '../attachments/store.ts';
import type { ChainRuntime } from '../chain/run/runtime.ts';
import { runDir } from '../cni/directories.ts';
import { isOfEarlierBoot } from '../files/process-stat.ts';
import type { RecordedAttachment } from './facts.ts';
import type { NodeOrigin } from './model.ts';

/**
 * Who made it: by our record if that is of this ADD, else by the path of the namespace, which runtimes choose differently. A cached result
 * names no program, so that is a conclusion and not knowledge.
 */
export function originOf({ known, record }: RecordedAttachment): NodeOrigin {
  const executables = [...(record?.executables ?? [])];
  if (record !== undefined && known.file !== undefined) {
    const runner = record.owner || 'a program of this library';
    return { runner, executables, evidence: `record "${record.file}"` };
  }
  const { netns, args } = known;
  const [runner] = RUNTIMES.find(([, path]) => path.test(netns)) ?? [];
  if (runner !== undefined) return { runner, executables, evidence: `its namespace is "${netns}"` };
  const isPod = args.some(([key, value]) => key === 'K8S_POD_NAMESPACE' && value !== '');
  const evidence = isPod ? 'the arguments of its ADD name a pod' : 'only the cached result is known';
  return { runner: 'another runtime', executables, evidence };
}

/** Where runtimes put namespaces: containerd's go-cni and ocicni, podman, docker. */
const RUNTIMES: readonly (readonly [string, RegExp])[] = [
  ['podman', /\/netns\/netns-[\da-f-]{36}$/],
  ['containerd', /\/netns\/cni-[\da-f-]{36}$/],
  ['docker', /\/docker\/netns\//],
  ['CRI-O', /\/netns\/[\da-f-]{36}$/],
];

/** ISO time of its ADD: by our record or the note of its ADD, else by the date of its cached result, which `catena set` writes again. */
export function sinceOf(
  one: Pick<RecordedAttachment, 'known' | 'record' | 'cached' | 'cacheDir'>,
  env: ChainRuntime['env'],
): string | undefined {
  const { known, record } = one;
  if (record !== undefined && known.file !== undefined) return record.runner.time;
  const note = findGeneration(runDir(env), known);
  if (note && !isOfEarlierBoot(note, env)) return new Date(note.time).toISOString();
  const cacheFile = findCacheFile(one);
  return cacheFile && statSync(cacheFile, { throwIfNoEntry: false })?.mtime.toISOString();
}
