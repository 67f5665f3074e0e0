// Which plugins has a list lost or gained since the last look, and which attachments were made with others?
//
// Installers of meshes and vendors edit the lists of a node, and one undoes what another did. Nothing fails then: pods that start lack what
// the plugin does.
import { statSync } from 'node:fs';
import { listNetworks } from '../chain/config/load.ts';
import { podNamedIn } from '../cni/env.ts';
import { isObject, memberOf, tryParse } from '../cni/json.ts';
import type { LogFields } from '../log.ts';
import type { WatchedAttachment } from './attachments.ts';
import type { ConfiguredLists } from './policy.ts';

/** Attachments that are named; the number of all follows. */
const NAMED = 20;

/** What is logged of each list that has other plugins now; a list that is gone has none. */
export function describeListChanges(
  confDir: string,
  before: ConfiguredLists,
  now: ConfiguredLists,
  attachments: Iterable<WatchedAttachment>,
): LogFields[] {
  const all = [...attachments];
  return [...before].flatMap(([network, source]) => {
    const [old, own] = [typesIn(source), typesIn(now.get(network))];
    const [lost, gained] = [without(old, own), without(own, old)];
    if (lost.length + gained.length === 0) return [];
    const others = all.filter(
      ({ id, known }) => id.network === network && typesIn(known.source).join() !== own.join(),
    );
    return {
      network,
      lost: lost.join(', ') || undefined,
      gained: gained.join(', ') || undefined,
      ...fileOf(confDir, network),
      made_with_others: others.slice(0, NAMED).map(nameOf).join(', ') || undefined,
      made_with_others_count: others.length || undefined,
    };
  });
}

/** The file, and what the kernel tells of its last change. */
function fileOf(confDir: string, network: string): LogFields {
  try {
    const file = listNetworks(confDir).networks.find(({ list }) => list.name === network)?.file;
    const found = file === undefined ? undefined : statSync(file);
    if (found === undefined) return {};
    return { file, written: found.mtime.toISOString(), placed: found.ctime.toISOString(), owner: found.uid };
  } catch {
    // It changes again just now, which is another change.
    return {};
  }
}

function typesIn(source: string | undefined): string[] {
  const list = source === undefined ? undefined : tryParse(source);
  const plugins = isObject(list) ? list.plugins : undefined;
  return (Array.isArray(plugins) ? plugins.filter(isObject) : []).map(one => String(memberOf(one, 'type')));
}

/** Those of the first that the second lacks; a type may be in a list twice. */
function without(types: readonly string[], others: readonly string[]): string[] {
  const left = [...others];
  return types.filter(type => {
    const at = left.indexOf(type);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
}

/** As a pod, if it is one. */
function nameOf({ known, id }: WatchedAttachment): string {
  const pod = podNamedIn(known);
  return pod ? `${pod.namespace}/${pod.name}` : id.containerId;
}
