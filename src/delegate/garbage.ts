// Which pods are gone without a DEL, and what have they leaked in each network?
import { findHolder, type KnownAttachment, listAttachments, pastOf } from '../attachments/store.ts';
import type { Conflist } from '../chain/config/conflist.ts';
import { collectGarbage, toKey } from '../chain/records/collect-garbage.ts';
import { joinErrors } from '../chain/run/call-plugins.ts';
import type { AttachmentKey } from '../cni/schemas.ts';
import { deletePod } from './delete.ts';
import { resolveNetwork } from './plan.ts';
import { listPods, type PodKey, type PodRecord, recall } from './record.ts';
import type { Runner } from './runner.ts';
import { listConfigured } from './wanted.ts';

/**
 * Deletes every pod on record that the runtime does not list. Then has each network collect what belongs to none of
 * the remaining pods. Continues after errors.
 * @param kept the attachments of this network that GC keeps: those that the runtime lists, and those begun since
 * @throws CniError that joins what failed
 */
export async function collectPods(runner: Runner, kept: { has(owner: PodKey): boolean }): Promise<void> {
  const { podsDir, options } = runner;
  const { pods, damaged } = listPods(podsDir);
  const own = pods.filter(({ record }) => record.network === options.network);
  const errors: unknown[] = [...damaged];
  const isGarbage = (record: KnownAttachment) =>
    !findHolder({ stateDir: podsDir, env: runner.runtime.env }, record) &&
    pastOf(record, runner.runtime.env).kind !== 'elsewhere' &&
    !kept.has(record);
  for (const { record } of own.filter(pod => isGarbage(pod.record))) {
    // Deleting earlier ones took time: the runtime may have attached the pod again.
    const isStill = (now: KnownAttachment) => now.runner.op === record.runner.op && !kept.has(record);
    await deletePod(runner, record, record.netns, isStill).catch(error => errors.push(error));
  }
  // The networks of a damaged record are unknown, so nothing may be collected.
  if (!damaged.length) errors.push(...(await collectNetworks(runner, own, kept).catch(error => [error])));
  if (errors.length) throw joinErrors(`Cannot collect garbage of network "${options.network}"`, errors);
}

async function collectNetworks(
  runner: Runner,
  before: readonly PodRecord[],
  kept: { has(owner: PodKey): boolean },
): Promise<unknown[]> {
  const errors: unknown[] = [];
  for (const list of (await networksOf(runner, before)).values()) {
    // List pods after the networks' records: a pod's record is written before those of its networks.
    const valid = () => [
      ...validOf(runner, listPods(runner.podsDir).pods, list.name),
      ...validUnrecorded(runner, kept, list.name),
    ];
    const look = await runner.look?.(list);
    await collectGarbage(list, { valid, ...(look && { look }) }, runner.runtime).catch(error =>
      errors.push(error),
    );
  }
  return errors;
}

/** Networks that the configuration names, and those of recorded pods; today's configuration has precedence. */
async function networksOf(runner: Runner, pods: readonly PodRecord[]): Promise<Map<string, Conflist>> {
  const { options } = runner;
  const networks = new Map<string, Conflist>();
  const keep = (list: Conflist) => void (networks.has(list.name) || networks.set(list.name, list));
  for (const [index, wanted] of listConfigured(options).entries()) {
    try {
      keep((await resolveNetwork(options, wanted, index)).list);
    } catch (error) {
      runner.warn('skipping a network of the configuration', { error: String(error) });
    }
  }
  for (const { record, networks: recorded } of pods) {
    for (const network of recorded) {
      try {
        keep(recall(record, network, '').list);
      } catch (error) {
        runner.warn('skipping a recorded network', { error: String(error) });
      }
    }
  }
  return networks;
}

/** Valid attachments of the network: of every pod on record, and those that a runtime made itself. */
function validOf(runner: Runner, pods: readonly PodRecord[], network: string): AttachmentKey[] {
  const recorded = pods.flatMap(({ record, networks }) =>
    networks.filter(one => one.network === network).map(({ ifname }) => toKey({ ...record, ifname })),
  );
  // Under our own name, the cache holds the attachments for which the runtime called us.
  if (network === runner.options.network) return recorded;
  const { attachments } = listAttachments({ cacheDir: runner.callerCacheDir }, { network });
  return [...recorded, ...attachments.map(toKey)];
}

/** Attachments of pods that multus attached, and of those that lost their record, as long as the runtime lists the pod. */
function validUnrecorded(
  { runtime, callerCacheDir, options }: Runner,
  kept: { has(owner: PodKey): boolean },
  network: string,
): AttachmentKey[] {
  const called = listAttachments({ cacheDir: callerCacheDir }, { network: options.network }).attachments;
  const pods = new Set(called.filter(one => kept.has(one)).map(({ containerId }) => containerId));
  const { attachments } = listAttachments({ cacheDir: runtime.cacheDir }, { network });
  return attachments.filter(({ containerId }) => pods.has(containerId)).map(toKey);
}
