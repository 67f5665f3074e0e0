// What has an attachment from its plugins: ports, rates, policies?

import { parseFrozen } from '../chain/config/conflist.ts';
import type { RememberedAdd } from '../chain/records/remembered-add.ts';
import { buildRequest } from '../chain/run/request.ts';
import type { FindAbout } from '../cni/network-plugins.ts';
import type { PluginEffects } from '../cni/plugin-about.ts';
import type { NodeAttachment } from './model.ts';

type Effects = Pick<NodeAttachment, 'ports' | 'rates' | 'policies'>;

/**
 * Asks what is known about each plugin of the list as it was at ADD, with the requests that it got. Nothing is executed, so a plugin that
 * is unknown here contributes nothing. The same goes for a configuration that its plugin refuses.
 */
export function effectsOf({ source, capabilityArgs }: RememberedAdd, find: FindAbout): Effects {
  const all = requestsOf(source, capabilityArgs).flatMap(request => {
    const about = find(String(request.type));
    try {
      return about?.effectsOf?.(request) ?? [];
    } catch {
      return [];
    }
  });
  return {
    ports: all.flatMap(({ ports = [] }) => ports.map(toPort)),
    rates: Object.assign({}, ...all.map(({ rates }) => rates)),
    policies: all.flatMap(({ policies = [] }) => policies),
  };
}

function requestsOf(source: string | undefined, capabilityArgs: RememberedAdd['capabilityArgs']) {
  if (source === undefined) return [];
  try {
    const list = parseFrozen(source);
    return list.plugins.map(entry => buildRequest(list, entry, { capabilityArgs }));
  } catch {
    return [];
  }
}

function toPort({ hostIP, hostPort, containerPort, protocol }: NonNullable<PluginEffects['ports']>[number]) {
  return {
    hostPort,
    containerPort,
    protocol: (protocol || 'tcp').toLowerCase(),
    ...(hostIP ? { hostIP } : {}),
  };
}
