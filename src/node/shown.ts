// Which attachments of a node have something to show?
import type { NodeAttachment } from './model.ts';

/**
 * Leaves out a runtime's loopback, and the attachment to a delegate runner if those that it made are among them: they have its
 * interfaces.
 */
export function withoutStandIns(attachments: readonly NodeAttachment[]): NodeAttachment[] {
  const runners = new Set(
    attachments.flatMap(({ through, containerId }) =>
      through === undefined ? [] : keyOf(through, containerId),
    ),
  );
  return attachments.filter(({ ifname, network, containerId, through }) => {
    return ifname !== 'lo' && (through !== undefined || !runners.has(keyOf(network, containerId)));
  });
}

function keyOf(network: string, containerId: string): string {
  return `${network}\n${containerId}`;
}
