// Which resolvers do DHCPv6 servers name to a client that has its address from elsewhere?
import { renderIp } from '../../../../src/net/ip.ts';
import { searchOf } from '../../codec/values.ts';
import { MessageType } from '../codec/message.ts';
import { Code, findOption } from '../codec/options.ts';
import { resolversOf } from '../lease.ts';
import { isTrusted, type Manner } from './acquire.ts';
import { ask, type Client } from './conversation.ts';

/** Names of servers and domains, in text. */
export interface Resolvers {
  readonly nameservers: string[];
  readonly search: string[];
}

/**
 * Asks for information only (RFC 9915, section 18.2.6).
 * @param giveUpAt in milliseconds of `performance.now()`
 * @returns undefined when no server answered in time
 */
export function askResolvers(
  client: Client,
  manner: Pick<Manner, 'servers'>,
  giveUpAt: number,
): Promise<Resolvers | undefined> {
  const wishes = Uint8Array.of(0, Code.nameservers, 0, Code.domainSearch);
  const question = { type: MessageType.informationRequest, options: [[Code.optionRequest, wishes]] as const };
  return ask(
    client,
    question,
    answer => {
      const { type, options } = answer.message;
      if (type !== MessageType.reply || !isTrusted(manner, answer)) return undefined;
      const nameservers = resolversOf(options).map(renderIp);
      return { nameservers, search: searchOf(findOption(options, Code.domainSearch)) };
    },
    { at: giveUpAt },
  );
}
