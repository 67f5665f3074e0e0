// Which rows match what is typed into the search field?

import { conditionOf } from '../../node/graph/layout.ts';
import type { NodeAttachment } from '../../node/model.ts';
import { renderPort, titleOf } from '../../node/words.ts';

/** Whether a text has every word, in any order; upper and lower case are the same. */
type Matcher = (text: string) => boolean;

/** An empty query matches everything. */
export function matcherOf(query: string): Matcher {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return text => {
    const lower = text.toLowerCase();
    return words.every(word => lower.includes(word));
  };
}

const texts = new WeakMap<NodeAttachment, string>();

/** What an attachment is found by. */
export function textOf(one: NodeAttachment): string {
  const known = texts.get(one);
  if (known !== undefined) return known;
  const { network, containerId, ifname, netns, addresses, device, hostDevice, origin, ports } = one;
  const devices = [device, hostDevice].flatMap(each => [each?.name, each?.mac, each?.master]);
  const text = [
    ...[titleOf(one), network, containerId, ifname, netns, origin.runner, conditionOf(one)],
    ...[...addresses, ...ports.map(renderPort), ...devices],
  ].join(' ');
  texts.set(one, text);
  return text;
}
