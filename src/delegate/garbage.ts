// Which pods are gone without a DEL, and what did they leave in every network?
import type { Conflist } from '../chain/conflist.ts';
import { collectGarbage } from '../chain/garbage.ts';
import { joinErrors } from '../chain/link-errors.ts';
import { listAttachments } from '../chain/result-cache.ts';
import type { AttachmentKey } from '../cni/plugin-config.ts';
import { deleteRecorded } from './delete.ts';
import { resolveNetwork } from './plan.ts';
import { listRecords, netnsIdOf, type PodRecord, recall } from './record.ts';
import type { Runner } from './runner.ts';
import { listConfigured } from './wanted.ts';

/**
 * Deletes every pod on record that the runtime does not list, then lets each network collect what belongs to none of
 * the pods that are left. Goes on after errors.
 * @param valid attachments of this network as the runtime knows them
 * @throws CniError that joins what failed
 */
export async function collectPods(runner: Runner, valid: readonly AttachmentKey[]): Promise<void> {
  const { recordDir, options } = runner;
  const { records, damaged } = listRecords(recordDir);
  const errors: unknown[] = [...damaged];
  const own = records.filter(({ network }) => network === options.network);
  for (const record of own) {
    const isValid = valid.some(key => key.containerID === record.containerId && key.ifname === record.ifname);
    if (isValid) continue;
    const netns = netnsIdOf(record.netns) === record.netnsId ? record.netns : '';
    errors.push(...(await deleteRecorded(runner, record, netns)));
  }
  // Whose networks a damaged record keeps, nobody knows: nothing is collected then.
  if (!damaged.length) errors.push(...(await collectNetworks(runner, records).catch(error => [error])));
  if (errors.length) throw joinErrors(`Cannot collect garbage of network "${options.network}"`, errors);
}

async function collectNetworks(runner: Runner, before: readonly PodRecord[]): Promise<unknown[]> {
  const { records } = listRecords(runner.recordDir);
  const errors: unknown[] = [];
  for (const list of (await networksOf(runner, before)).values()) {
    const valid = validOf(runner, records, list.name);
    await collectGarbage(list, { valid }, runner.runtime).catch(error => errors.push(error));
  }
  return errors;
}

/** Networks that the configuration names, and those that pods of ours had; today's configuration goes first. */
async function networksOf(runner: Runner, records: readonly PodRecord[]): Promise<Map<string, Conflist>> {
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
  for (const record of records.filter(({ network }) => network === options.network)) {
    for (const network of record.networks) {
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
function validOf(runner: Runner, records: readonly PodRecord[], network: string): AttachmentKey[] {
  const recorded = records.flatMap(({ containerId, networks }) =>
    networks
      .filter(one => one.network === network)
      .map(({ ifname }) => ({ containerID: containerId, ifname })),
  );
  // Under our own name the runtime keeps what it calls us with.
  if (network === runner.options.network) return recorded;
  const { attachments } = listAttachments(runner.callerCacheDir, { network });
  return [
    ...recorded,
    ...attachments.map(({ containerId, ifname }) => ({ containerID: containerId, ifname })),
  ];
}
