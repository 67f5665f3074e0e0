// Which pods are gone without a DEL, and what did they leave in every network?
import type { Conflist } from '../chain/conflist.ts';
import { collectGarbage } from '../chain/garbage.ts';
import { joinErrors } from '../chain/link-errors.ts';
import { listAttachments } from '../chain/result-cache.ts';
import type { AttachmentKey } from '../cni/plugin-config.ts';
import { holderOf } from '../journal/claim.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { deletePod } from './delete.ts';
import { resolveNetwork } from './plan.ts';
import { listPods, type PodRecord, recall } from './record.ts';
import type { Runner } from './runner.ts';
import { listConfigured } from './wanted.ts';

/**
 * Deletes every pod on record that the runtime does not list, then lets each network collect what belongs to none of
 * the pods that are left. Goes on after errors.
 * @param valid attachments of this network as the runtime knows them
 * @throws CniError that joins what failed
 */
export async function collectPods(runner: Runner, valid: readonly AttachmentKey[]): Promise<void> {
  const { podsDir, options } = runner;
  const { pods, damaged } = listPods(podsDir);
  const own = pods.filter(({ record }) => record.network === options.network);
  const errors: unknown[] = [...damaged];
  const isGarbage = (record: AttachmentRecord) =>
    !holderOf(record) &&
    !valid.some(key => key.containerID === record.containerId && key.ifname === record.ifname);
  for (const { record } of own.filter(pod => isGarbage(pod.record))) {
    await deletePod(runner, record, record.netns, () => true).catch(error => errors.push(error));
  }
  // Whose networks a damaged record keeps, nobody knows: nothing is collected then.
  if (!damaged.length) errors.push(...(await collectNetworks(runner, own).catch(error => [error])));
  if (errors.length) throw joinErrors(`Cannot collect garbage of network "${options.network}"`, errors);
}

async function collectNetworks(runner: Runner, before: readonly PodRecord[]): Promise<unknown[]> {
  const { pods } = listPods(runner.podsDir);
  const errors: unknown[] = [];
  const look = await runner.look?.();
  const more = look ? { look } : {};
  for (const list of (await networksOf(runner, before)).values()) {
    const valid = validOf(runner, pods, list.name);
    await collectGarbage(list, { valid, ...more }, runner.runtime).catch(error => errors.push(error));
  }
  return errors;
}

/** Networks that the configuration names, and those that pods of ours had; today's configuration goes first. */
async function networksOf(runner: Runner, pods: readonly PodRecord[]): Promise<Map<string, Conflist>> {
  const { options } = runner;
  const networks = new Map<string, Conflist>();
  const keep = (list: Conflist) => void (networks.has(list.name) || networks.set(list.name, list));
  for (const [index, wanted] of listConfigured(options).entries()) {
    try {
      keep((await resolveNetwork(options, wanted, index)).list);
    } catch (error) {
      runner.warn('a network of the configuration is passed by', { error: String(error) });
    }
  }
  for (const { record, networks: recorded } of pods) {
    for (const network of recorded) {
      try {
        keep(recall(record, network, '').list);
      } catch (error) {
        runner.warn('a network on record is passed by', { error: String(error) });
      }
    }
  }
  return networks;
}

/** Attachments of the network that must stay: of every pod on record, and those that a runtime made by itself. */
function validOf(runner: Runner, pods: readonly PodRecord[], network: string): AttachmentKey[] {
  const recorded = pods.flatMap(({ record, networks }) =>
    networks
      .filter(one => one.network === network)
      .map(({ ifname }) => ({ containerID: record.containerId, ifname })),
  );
  // Under our own name the runtime keeps what it calls us with.
  if (network === runner.options.network) return recorded;
  const { attachments } = listAttachments(runner.callerCacheDir, { network });
  return [
    ...recorded,
    ...attachments.map(({ containerId, ifname }) => ({ containerID: containerId, ifname })),
  ];
}
