// What does `catena who` do?
import { defined } from '../../cni/json.ts';
import type { NodeAttachment } from '../../node/model.ts';
import { findWho, type Owned } from '../../node/who.ts';
import { renderAge, titleOf } from '../../node/words.ts';
import type { CommandCall } from '../command.ts';
import { readNodeFor } from '../node/read.ts';
import { printAnswer } from '../output/print.ts';

/** Says whose something is, and on what evidence; fails if nothing on this node has it. */
export async function run(call: CommandCall): Promise<number> {
  const query = call.positionals.join(' ');
  const node = await readNodeFor(call);
  const owners = findWho(node, query);
  const found = owners.map(({ attachment, evidence }) => ({ ...defined({ attachment }), evidence }));
  const answer = { query, owners: found };
  await printAnswer(call, 'Owners', answer, {
    text: () =>
      owners.map(one => render(one, Date.parse(node.time))).join('\n') ||
      `nothing on this node has, or is, "${query}"\n`,
    names: () => owners.flatMap(({ attachment }) => (attachment ? titleOf(attachment) : [])),
  });
  return owners.length ? 0 : 1;
}

function render({ attachment, evidence }: Owned, now: number): string {
  if (attachment === undefined) return `not of an attachment on record\n${renderEvidence(evidence)}`;
  const { network, ifname, containerId, since, origin, state, addresses, netns } = attachment;
  const rows = [
    ['network', `${network}, interface ${ifname}`],
    ['container', containerId],
    ['addresses', addresses.join(', ')],
    ['namespace', netns],
    ['state', state === 'attached' ? '' : stateWords(attachment)],
    ['since', since === undefined ? '' : `${renderAge(since, now)} ago, ${since}`],
    ['made by', `${origin.runner}: ${origin.evidence}`],
  ].filter(([, value]) => value !== '');
  const lines = rows.map(([key = '', value]) => `  ${key.padEnd(9)}  ${value}\n`);
  return `${titleOf(attachment)}\n${lines.join('')}${renderEvidence(evidence)}`;
}

function stateWords({ state, why }: NodeAttachment): string {
  if (state === 'gone') return 'gone: its namespace no longer exists';
  return why === undefined ? state : `${state}: ${why}`;
}

function renderEvidence(evidence: readonly string[]): string {
  return evidence.map(line => `  - ${line}\n`).join('');
}
